-- What was ever booked on each dataset, for each value of each dimension, at its most charged cell.
SELECT ledger, dataset, dimension, value, currency,
       used, used_infinite, reserved, reserved_infinite
FROM group_total
WHERE rule = '' AND unit = ''
ORDER BY ledger, dataset, dimension, value, currency;
