-- The limit rules in force: what each account has used at its most charged cell, beside what a cell
-- may hold. A request fits if delta fits, and epsilon or the gate's own currency does. Limits that are
-- about some cells only (subjects) are left out: cell_total has what those cells have used.
SELECT r.ledger, r.rule, r.epoch, r.gate, r.action, t.dataset, t.client, r.unit, t.purpose,
       r.currency, r.capacity,
       t.used, t.used_infinite, t.reserved, t.reserved_infinite
FROM rule r
JOIN total t ON t.ledger = r.ledger AND t.rule = r.rule AND t.epoch = r.epoch
    AND t.currency = r.currency
WHERE r.subjects IS NULL
ORDER BY r.ledger, r.rule, t.dataset, t.client, t.purpose, r.currency;
