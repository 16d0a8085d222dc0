-- What was ever booked on each dataset ('*': on a person, over all of them), at its most charged cell.
SELECT ledger, dataset, currency, used, used_infinite, reserved, reserved_infinite
FROM total
WHERE rule = '' AND unit = ''
ORDER BY ledger, dataset, currency;
