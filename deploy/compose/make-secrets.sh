#!/bin/sh
# Makes the passwords of the database, and the URLs that hold them, in deploy/compose/secrets/ or the
# folder that is named. What is there stays. The folder is for its owner alone; the files in it are
# readable to all, for the containers' users are others.
set -eu
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"
chmod 700 "$folder"
umask 022
for name in postgres owner app; do
    file=$folder/${name}_password
    if [ ! -s "$file" ]; then
        head -c 24 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$file"
    fi
done
host=${DATABASE_HOST:-database:5432}
for pair in app:database owner:owner; do
    role=${pair%:*}
    file=$folder/${pair#*:}_url
    if [ ! -s "$file" ]; then
        printf 'postgresql://%s:%s@%s/accountant' "$role" "$(cat "$folder/${role}_password")" "$host" >"$file"
    fi
done
