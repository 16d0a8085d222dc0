-- What cannot be: no row is the right answer. The sums that the bodies of events state are read from
-- their text, so that a charge that is not what its event says is found without this project's code.
WITH stated AS (
    SELECT ledger, sequence, dataset, grant_id, CASE
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
    SELECT s.ledger, s.sequence, s.dataset, s.grant_id, c.currency,
           CAST(NULLIF(CASE c.currency
               WHEN 'delta' THEN regexp_extract(s.sums, '"delta":"([0-9]+)"', 1)
               ELSE regexp_extract(s.sums, '"epsilon":"([0-9]+)"', 1)
           END, '') AS DECIMAL(38, 0)) AS units
    FROM stated s
    CROSS JOIN (VALUES ('delta'), ('epsilon')) AS c(currency)
),
-- A settled grant counts what its settling says instead of what was reserved.
expected AS (
    SELECT ledger, sequence, dataset, currency,
           units - COALESCE(LAG(units) OVER (
               PARTITION BY ledger, currency, grant_id,
                            CASE WHEN grant_id IS NULL THEN sequence END
               ORDER BY sequence
           ), 0) AS units
    FROM said
),
written AS (
    SELECT ledger, sequence, dataset, currency,
           SUM(CAST(units AS DECIMAL(38, 0))) AS units,
           SUM(CASE WHEN infinite = 0 THEN 0 ELSE 1 END) AS infinite
    FROM charge
    WHERE rule = ''
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
SELECT p.ledger, p.sequence, CONCAT('the charges in ', p.currency, ' to ', p.scope,
                                    ' are not what the event says')
FROM (
    SELECT e.ledger, e.sequence, e.currency, w.scope, e.units AS said,
           COALESCE(x.units, 0) AS units, COALESCE(x.infinite, 0) AS infinite
    FROM expected e
    CROSS JOIN (VALUES ('its dataset'), ('the person')) AS w(scope)
    LEFT JOIN written x ON x.ledger = e.ledger AND x.sequence = e.sequence
        AND x.currency = e.currency
        AND x.dataset = CASE w.scope WHEN 'its dataset' THEN e.dataset ELSE '*' END
) p
WHERE p.said IS NULL OR (p.infinite = 0 AND p.units <> p.said)
UNION ALL
SELECT DISTINCT d.ledger, d.sequence, 'one event charges its accounts different amounts'
FROM (
    SELECT c.ledger, c.sequence
    FROM charge c
    JOIN event e ON e.ledger = c.ledger AND e.sequence = c.sequence
    WHERE e.type IN ('grant.reserved.v1', 'grant.committed.v1', 'grant.released.v1',
                     'grant.expired.v1', 'sparse_vector.closed.v1', 'invocation.recorded.v1',
                     'charge.revalued.v1')
    GROUP BY c.ledger, c.sequence, c.currency, c.held
    HAVING MIN(c.infinite) = 0 AND MAX(c.infinite) = 0 AND MIN(c.units) <> MAX(c.units)
) d
ORDER BY 1, 2, 3;
