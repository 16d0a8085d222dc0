-- The tables, for DuckDB started in the folder that holds them.
CREATE OR REPLACE TEMPORARY VIEW event AS SELECT * FROM read_parquet('event/*.parquet');
CREATE OR REPLACE TEMPORARY VIEW charge AS SELECT * FROM read_parquet('charge/*.parquet');
CREATE OR REPLACE TEMPORARY VIEW selection AS SELECT * FROM read_parquet('selection/*.parquet');
CREATE OR REPLACE TEMPORARY VIEW dimension AS SELECT * FROM read_parquet('dimension/*.parquet');
CREATE OR REPLACE TEMPORARY VIEW cell AS SELECT * FROM read_parquet('cell/*.parquet');
CREATE OR REPLACE TEMPORARY VIEW dataset AS SELECT * FROM read_parquet('dataset/*.parquet');
CREATE OR REPLACE TEMPORARY VIEW rule AS SELECT * FROM read_parquet('rule/*.parquet');
CREATE OR REPLACE TEMPORARY VIEW head AS SELECT * FROM read_parquet('head/*.parquet');
-- The bodies as text, which each engine decodes in its own way, and their leaf hashes in hex.
CREATE OR REPLACE TEMPORARY VIEW event_text AS
SELECT ledger, sequence, type, dataset, charged, grant_id, decode(body) AS body,
       sha256('\x00'::BLOB || body) AS hashed, lower(hex(leaf)) AS leaf
FROM event;
