-- What cannot be: no row is the right answer. The sums that the bodies of events state are read from
-- their text, so that a charge that is not what its event says is found without this project's code.
WITH stated AS (
    SELECT ledger, sequence, charged, grant_id, CASE
        WHEN type = 'charge.revalued.v1'
        THEN regexp_extract(body, '"more":[{]"delta":"[0-9]+","epsilon":"[0-9]+"', 0)
        WHEN type IN ('grant.reserved.v1', 'invocation.recorded.v1')
        THEN regexp_extract(body, '"total":[{]"delta":"[0-9]+","epsilon":"[0-9]+"', 0)
        WHEN type = 'grant.released.v1' THEN '"delta":"0","epsilon":"0"'
        ELSE regexp_extract(body, '"charge":[{]"delta":"[0-9]+","epsilon":"[0-9]+"', 0)
    END AS sums
    FROM event_text
    WHERE type IN ('grant.reserved.v1', 'grant.committed.v1', 'grant.released.v1',
                   'grant.expired.v1', 'sparse_vector.closed.v1', 'invocation.recorded.v1',
                   'charge.revalued.v1')
),
said AS (
    SELECT s.ledger, s.sequence, s.charged, s.grant_id, c.currency,
           CAST(NULLIF(CASE c.currency
               WHEN 'delta' THEN regexp_extract(s.sums, '"delta":"([0-9]+)"', 1)
               ELSE regexp_extract(s.sums, '"epsilon":"([0-9]+)"', 1)
           END, '') AS DECIMAL(38, 0)) AS units
    FROM stated s
    CROSS JOIN (VALUES ('delta'), ('epsilon')) AS c(currency)
),
-- A settled grant counts what its settling says instead of what was reserved at ``opened``.
expected AS (
    SELECT ledger, sequence, charged, currency, units,
           LAG(units) OVER same AS reserved,
           LAG(sequence) OVER same AS opened
    FROM said
    WINDOW same AS (
        PARTITION BY ledger, currency, grant_id, CASE WHEN grant_id IS NULL THEN sequence END
        ORDER BY sequence
    )
),
scoped AS (
    SELECT e.ledger, e.sequence, e.currency, e.opened, 'its dataset' AS scope, e.units, e.reserved,
           d.dataset
    FROM expected e
    JOIN dataset d ON d.ledger = e.ledger
        AND INSTR(CONCAT(',', e.charged, ','), CONCAT(',', d.dataset, ',')) > 0
    UNION ALL
    SELECT e.ledger, e.sequence, e.currency, e.opened, 'the person' AS scope, e.units, e.reserved,
           '*' AS dataset
    FROM expected e
),
-- An account that is carried over spends what open grants reserved in it: their ends change nothing.
absorbed AS (
    SELECT DISTINCT s.ledger, s.sequence, s.dataset
    FROM scoped s
    JOIN event_text k ON k.ledger = s.ledger AND k.type = 'ledger.carried_over.v1'
        AND k.sequence > s.opened AND k.sequence < s.sequence
        AND INSTR(k.body, CONCAT('"client":"","dataset":"', s.dataset,
                                 '","epoch":0,"rule":"","used":')) > 0
),
written AS (
    SELECT ledger, sequence, dataset, currency,
           SUM(CAST(units AS DECIMAL(38, 0))) AS units,
           SUM(CASE WHEN infinite = 0 THEN 0 ELSE 1 END) AS infinite
    FROM charge
    WHERE rule = '' AND unit = ''
    GROUP BY ledger, sequence, dataset, currency
)
SELECT h.ledger, CAST(NULL AS BIGINT) AS sequence,
       'the events are not 0 to the size of the head' AS problem
FROM head h
LEFT JOIN (
    SELECT ledger, COUNT(*) AS rows_there, COUNT(DISTINCT sequence) AS events,
           MIN(sequence) AS low, MAX(sequence) AS high
    FROM event
    GROUP BY ledger
) e ON e.ledger = h.ledger
WHERE e.ledger IS NULL OR e.rows_there <> h.size OR e.events <> h.size
    OR e.low <> 0 OR e.high <> h.size - 1
UNION ALL
SELECT t.ledger, t.sequence, 'the body does not have the leaf hash that stands beside it'
FROM event_text t
WHERE t.hashed <> t.leaf
UNION ALL
SELECT DISTINCT c.ledger, c.sequence, 'a charge of an event that is not there'
FROM charge c
LEFT JOIN event e ON e.ledger = c.ledger AND e.sequence = c.sequence
WHERE e.ledger IS NULL
UNION ALL
SELECT DISTINCT c.ledger, c.sequence, 'a charge to a group that is not there'
FROM charge c
LEFT JOIN selection s ON s.ledger = c.ledger AND s.selection = c.selection
WHERE c.selection <> 0 AND s.ledger IS NULL
UNION ALL
SELECT DISTINCT n.ledger, CAST(NULL AS BIGINT), 'a cell has less than nothing'
FROM narrow n
WHERE n.used < 0 OR n.used_infinite < 0 OR n.reserved < 0 OR n.reserved_infinite < 0
UNION ALL
SELECT s.ledger, s.sequence, CONCAT('the charges in ', s.currency, ' to ', s.scope,
                                    ' are not what the event says')
FROM scoped s
LEFT JOIN written x ON x.ledger = s.ledger AND x.sequence = s.sequence
    AND x.currency = s.currency AND x.dataset = s.dataset
LEFT JOIN absorbed a ON a.ledger = s.ledger AND a.sequence = s.sequence AND a.dataset = s.dataset
WHERE s.units IS NULL
    OR (COALESCE(x.infinite, 0) = 0 AND COALESCE(x.units, 0)
        <> CASE WHEN a.ledger IS NULL THEN s.units - COALESCE(s.reserved, 0) ELSE 0 END)
UNION ALL
SELECT DISTINCT d.ledger, d.sequence, 'one event charges its accounts different amounts'
FROM (
    SELECT c.ledger, c.sequence
    FROM charge c
    JOIN event e ON e.ledger = c.ledger AND e.sequence = c.sequence
    WHERE e.type IN ('grant.reserved.v1', 'grant.committed.v1', 'grant.released.v1',
                     'grant.expired.v1', 'sparse_vector.closed.v1', 'invocation.recorded.v1',
                     'charge.revalued.v1')
    GROUP BY c.ledger, c.sequence, c.unit, c.currency, c.held
    HAVING MIN(c.infinite) = 0 AND MAX(c.infinite) = 0 AND MIN(c.units) <> MAX(c.units)
) d
ORDER BY 1, 2, 3;
