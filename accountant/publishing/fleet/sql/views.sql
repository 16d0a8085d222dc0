-- Sums of charges. An account is (ledger, rule, epoch, dataset, client, unit, purpose); rule '' is the lifetime,
-- dataset '*' a person's total over all datasets. Everything is whole units: no sum is rounded.

-- What was booked on each group of cells; selection 0 is everyone, whatever the cells.
CREATE OR REPLACE TEMPORARY VIEW booked AS
SELECT ledger, rule, epoch, dataset, client, unit, purpose, currency, selection,
       SUM(CAST(units AS DECIMAL(38, 0))) AS used,
       SUM(CAST(infinite AS DECIMAL(38, 0))) AS used_infinite,
       SUM(CAST(CASE WHEN held = 'reserved' THEN units ELSE 0 END AS DECIMAL(38, 0))) AS reserved,
       SUM(CAST(CASE WHEN held = 'reserved' THEN infinite ELSE 0 END AS DECIMAL(38, 0)))
           AS reserved_infinite
FROM charge
GROUP BY ledger, rule, epoch, dataset, client, unit, purpose, currency, selection;

-- The cells of each narrower group: those that some box holds on all sides that it is restricted on.
CREATE OR REPLACE TEMPORARY VIEW member AS
SELECT s.ledger, s.selection, c.cell
FROM selection s
JOIN dimension d ON d.ledger = s.ledger AND d.dimension = s.dimension
    AND d.position BETWEEN s.low AND s.high
JOIN cell c ON c.ledger = d.ledger AND c.dimension = d.dimension AND c.position = d.position
GROUP BY s.ledger, s.selection, s.box, c.cell
HAVING COUNT(*) = MAX(s.sides);

-- What cells have beside everyone's part; only those that something narrower was booked on.
CREATE OR REPLACE TEMPORARY VIEW narrow AS
SELECT b.ledger, b.rule, b.epoch, b.dataset, b.client, b.unit, b.purpose, b.currency, m.cell,
       SUM(b.used) AS used, SUM(b.used_infinite) AS used_infinite,
       SUM(b.reserved) AS reserved, SUM(b.reserved_infinite) AS reserved_infinite
FROM booked b
JOIN member m ON m.ledger = b.ledger AND m.selection = b.selection
GROUP BY b.ledger, b.rule, b.epoch, b.dataset, b.client, b.unit, b.purpose, b.currency, m.cell;

-- Each account in each currency: the largest sum of any cell. (What a cell has beside everyone's
-- part is never negative, so that cells without any need not be looked at.)
CREATE OR REPLACE TEMPORARY VIEW total AS
SELECT ledger, rule, epoch, dataset, client, unit, purpose, currency,
       SUM(used) AS used, SUM(used_infinite) AS used_infinite,
       SUM(reserved) AS reserved, SUM(reserved_infinite) AS reserved_infinite
FROM (
    SELECT ledger, rule, epoch, dataset, client, unit, purpose, currency,
           used, used_infinite, reserved, reserved_infinite
    FROM booked
    WHERE selection = 0
    UNION ALL
    SELECT ledger, rule, epoch, dataset, client, unit, purpose, currency,
           MAX(used), MAX(used_infinite), MAX(reserved), MAX(reserved_infinite)
    FROM narrow
    GROUP BY ledger, rule, epoch, dataset, client, unit, purpose, currency
) parts
GROUP BY ledger, rule, epoch, dataset, client, unit, purpose, currency;

-- The same for the cells with one value of one dimension.
CREATE OR REPLACE TEMPORARY VIEW group_total AS
SELECT ledger, rule, epoch, dataset, client, unit, purpose, currency, dimension, value,
       SUM(used) AS used, SUM(used_infinite) AS used_infinite,
       SUM(reserved) AS reserved, SUM(reserved_infinite) AS reserved_infinite
FROM (
    SELECT b.ledger, b.rule, b.epoch, b.dataset, b.client, b.unit, b.purpose, b.currency, d.dimension, d.value,
           b.used, b.used_infinite, b.reserved, b.reserved_infinite
    FROM booked b
    JOIN dimension d ON d.ledger = b.ledger
    WHERE b.selection = 0
    UNION ALL
    SELECT n.ledger, n.rule, n.epoch, n.dataset, n.client, n.unit, n.purpose, n.currency, c.dimension, c.value,
           MAX(n.used), MAX(n.used_infinite), MAX(n.reserved), MAX(n.reserved_infinite)
    FROM narrow n
    JOIN cell c ON c.ledger = n.ledger AND c.cell = n.cell
    GROUP BY n.ledger, n.rule, n.epoch, n.dataset, n.client, n.unit, n.purpose, n.currency, c.dimension, c.value
) parts
GROUP BY ledger, rule, epoch, dataset, client, unit, purpose, currency, dimension, value;

-- Every cell of every account. Ask for one dataset of a ledger with many cells, not for all.
CREATE OR REPLACE TEMPORARY VIEW cell_total AS
SELECT ledger, rule, epoch, dataset, client, unit, purpose, currency, cell,
       SUM(used) AS used, SUM(used_infinite) AS used_infinite,
       SUM(reserved) AS reserved, SUM(reserved_infinite) AS reserved_infinite
FROM (
    SELECT b.ledger, b.rule, b.epoch, b.dataset, b.client, b.unit, b.purpose, b.currency, c.cell,
           b.used, b.used_infinite, b.reserved, b.reserved_infinite
    FROM booked b
    JOIN (SELECT DISTINCT ledger, cell FROM cell) c ON c.ledger = b.ledger
    WHERE b.selection = 0
    UNION ALL
    SELECT ledger, rule, epoch, dataset, client, unit, purpose, currency, cell,
           used, used_infinite, reserved, reserved_infinite
    FROM narrow
) parts
GROUP BY ledger, rule, epoch, dataset, client, unit, purpose, currency, cell;
