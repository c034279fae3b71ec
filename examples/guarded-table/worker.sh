#!/bin/sh
# Writes rows to the guarded table until it is told to stop or the table refuses its token.
#
#   tenure elect demo -- examples/guarded-table/worker.sh [DATABASE]
#
# The first row seals: from then on no earlier leader can write. It needs sqlite3.
set -u
db=${1:-work.db}
trap 'exit 0' TERM
until sqlite3 "$db" <"$(dirname "$0")/schema.sql" 2>/dev/null; do sleep 0.1; done
while err=$(sqlite3 -cmd '.timeout 10000' "$db" "insert into work (worker, token) values ('$$', $TENURE_FENCING_TOKEN)" 2>&1); do
	sleep 0.2
done
echo "worker $$, token $TENURE_FENCING_TOKEN: $err" >&2
exit 1
