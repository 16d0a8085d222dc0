-- The limit rules in force: what each account has used at its most charged cell, beside what a cell
-- may hold. A request fits if delta fits, and epsilon or the gate's own currency does.
SELECT r.ledger, r.rule, r.epoch, r.gate, r.action, t.dataset, t.client, r.unit, r.currency, r.capacity,
       t.used, t.used_infinite, t.reserved, t.reserved_infinite
FROM rule r
JOIN total t ON t.ledger = r.ledger AND t.rule = r.rule AND t.epoch = r.epoch
    AND t.currency = r.currency
ORDER BY r.ledger, r.rule, t.dataset, t.client, r.currency;
