#!/bin/bash
# Run the tests in several processes, then once more and alone those few that failed:
#
#     ci/pytest.sh .venv/bin/python -n 8 -m "not integrations"
#
# What passes only alone waited too short a time for a machine with other work. It is
# printed, so that somebody repairs it. What fails alone too fails here, and so do more
# than MOST tests, which are no matter of chance. Processes that are left when all tests
# have passed are a failure, too: exit code 9.
set -u
MOST=5
python=$1
shift
cache=$(mktemp -d "${TMPDIR:-/tmp}/pytest.XXXXXX")
trap 'rm -rf "$cache"' EXIT

tests() { "$python" "${0%/*}/leftovers.py" "$python" -m pytest -o cache_dir="$cache" "$@" 8<&-; }

exec 8<"${WEIGH_TESTS_BESIDE:-/dev/null}"
[ -z "${WEIGH_TESTS_BESIDE-}" ] || flock --shared 8
tests "$@"
code=$?
[ $code -eq 1 ] || exit $code # 1: tests failed; others: interrupted, wrong usage, none found
failed=$("$python" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' \
    "$cache/v/cache/lastfailed") || exit $code
count=$(printf '%s\n' "$failed" | wc -l)
if [ "$count" -gt $MOST ]; then
    echo "${0##*/}: $count tests failed, too many to try again alone"
    exit $code
fi
echo "${0##*/}: failed beside others, and now once more alone:"
printf '%s\n' "$failed" | sed 's,^,    ,'
[ -z "${WEIGH_TESTS_BESIDE-}" ] || flock --exclusive --timeout 600 8
tests "$@" -n 0 --last-failed
again=$?
if [ $again -eq 0 ] && ! grep -qx '{}' "$cache/v/cache/lastfailed"; then
    echo "${0##*/}: not all of them ran again"
    exit 1
fi
[ $again -ne 0 ] || echo "${0##*/}: passed alone only: repair what makes these depend on other work"
exit $again
