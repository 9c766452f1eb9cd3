# The main job on the sample sessions: import, look, ask, give out again, prove. Run by `make demo` and by a test.
set -eu
PATH="$PWD/${BIN:-.venv/bin}:$PATH"
rm -rf demo
mkdir demo
export SESSIONDB_DB="$PWD/demo/sessions.db"
show() { printf '\n$ %s\n' "$*"; "$@"; }

show sessiondb import tests/golden/samples
show sessiondb ls
show sessiondb tree 019b8d3a
show sessiondb sql "SELECT model, count(*) AS answers, round(sum(cost), 4) AS dollars FROM entries WHERE role = 'assistant' GROUP BY model ORDER BY dollars DESC"
show sessiondb export --all --to demo/out
show sessiondb verify
show sessiondb verify --deletable
