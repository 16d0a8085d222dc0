#!/bin/sh
# Makes the two roles and their database, when the data folder is new: `owner` owns the tables and
# migrates, `app` is the service's and gets its rights from `accountant migrate`.
set -eu
secrets=${SECRETS:-/run/secrets}
psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres \
    --set owner="$(cat "$secrets/owner_password")" --set app="$(cat "$secrets/app_password")" <<'SQL'
CREATE ROLE owner LOGIN PASSWORD :'owner';
CREATE ROLE app LOGIN PASSWORD :'app';
CREATE DATABASE accountant OWNER owner TEMPLATE template0 ENCODING 'UTF8';
REVOKE ALL ON DATABASE accountant FROM PUBLIC;
GRANT CONNECT ON DATABASE accountant TO app;
SQL
