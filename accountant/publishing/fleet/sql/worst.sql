-- The most charged cell of each dataset, a row for each of its values; infinite before finite, and
-- the first of equals. A dataset is not listed in a currency that only everyone was charged in.
SELECT w.ledger, w.dataset, w.currency, w.cell, c.dimension, c.value,
       w.used + COALESCE(b.used, 0) AS used,
       w.used_infinite + COALESCE(b.used_infinite, 0) AS used_infinite
FROM (
    SELECT ledger, dataset, currency, cell, used, used_infinite,
           ROW_NUMBER() OVER (
               PARTITION BY ledger, dataset, currency ORDER BY used_infinite DESC, used DESC, cell
           ) AS place
    FROM narrow
    WHERE rule = '' AND unit = '' AND (used <> 0 OR used_infinite <> 0)
) w
LEFT JOIN booked b ON b.ledger = w.ledger AND b.rule = '' AND b.unit = '' AND b.dataset = w.dataset
    AND b.currency = w.currency AND b.selection = 0
JOIN cell c ON c.ledger = w.ledger AND c.cell = w.cell
WHERE w.place = 1
ORDER BY w.ledger, w.dataset, w.currency, c.dimension;
