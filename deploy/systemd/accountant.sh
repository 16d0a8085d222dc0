#!/bin/sh
# Runs `accountant` as the service's user, with its settings, home folder and limits. Install it as
# /usr/local/bin/accountant. The owner's URL of the database is only read for `restore`.
set -eu
settings=/etc/accountant/accountant.env
owner=
if [ "${1:-}" = restore ]; then
    owner=--property=EnvironmentFile=-/etc/accountant/migrate.env
fi
if [ -t 0 ] && [ -t 1 ]; then ends=--pty; else ends=--pipe; fi
exec systemd-run --quiet --wait --collect $ends \
    --property=DynamicUser=yes --property=User=accountant --property=UMask=0077 \
    --property=StateDirectory=accountant --property=StateDirectoryMode=0700 \
    --property=WorkingDirectory=/var/lib/accountant --property=LimitNOFILE=16384 \
    --property=EnvironmentFile=-$settings $owner \
    --setenv=ACCOUNTANT_HOME=/var/lib/accountant --setenv=PYTHONDONTWRITEBYTECODE=1 \
    /opt/accountant/bin/accountant "$@"
