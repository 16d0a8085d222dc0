-- The tables, for Spark started in the folder that holds them (else put the folder before each name).
CREATE OR REPLACE TEMPORARY VIEW event AS SELECT * FROM parquet.`event`;
CREATE OR REPLACE TEMPORARY VIEW charge AS SELECT * FROM parquet.`charge`;
CREATE OR REPLACE TEMPORARY VIEW selection AS SELECT * FROM parquet.`selection`;
CREATE OR REPLACE TEMPORARY VIEW dimension AS SELECT * FROM parquet.`dimension`;
CREATE OR REPLACE TEMPORARY VIEW cell AS SELECT * FROM parquet.`cell`;
CREATE OR REPLACE TEMPORARY VIEW dataset AS SELECT * FROM parquet.`dataset`;
CREATE OR REPLACE TEMPORARY VIEW rule AS SELECT * FROM parquet.`rule`;
CREATE OR REPLACE TEMPORARY VIEW head AS SELECT * FROM parquet.`head`;
-- The bodies as text, which each engine decodes in its own way, and their leaf hashes in hex.
CREATE OR REPLACE TEMPORARY VIEW event_text AS
SELECT ledger, sequence, type, dataset, charged, grant_id, decode(body, 'UTF-8') AS body,
       sha2(concat(X'00', body), 256) AS hashed, lower(hex(leaf)) AS leaf
FROM event;
