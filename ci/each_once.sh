#!/bin/bash
# Run each test once: as an ordinary user, or as root what needs a real scheduler or root:
#
#     ci/isolated.sh ci/each_once.sh .venv/bin/python -n 8 -m "not integrations"
#
# Only inside ci/isolated.sh, as root. Root's tests, which mostly wait, run beside the
# others and are printed after them.
set -u
here=${0%/*}

# who tries tests again alone waits until the other part has ended, or does the same
export WEIGH_TESTS_BESIDE=$TMPDIR/beside
install -m 666 /dev/null "$WEIGH_TESTS_BESIDE"
collected=$TMPDIR/collected
"$here/pytest.sh" "$@" --part=root --collected="$collected" >"$TMPDIR/root.log" 2>&1 &
root=$!
# the user's copy of the sources then has what Python compiled of the tests
until [ -e "$collected" ] || ! kill -0 $root 2>/dev/null; do sleep 0.1; done
unshare -m "$here/ordinary_user.sh" env WEIGH_TESTS_BESIDE="$WEIGH_TESTS_BESIDE" \
    "$here/pytest.sh" "$@" --part=user
user_code=$?
wait $root
root_code=$?
cat "$TMPDIR/root.log"
# 5 is pytest's for no test; a first failure is the result
[ $user_code -eq 5 ] && exit $root_code
[ $user_code -ne 0 ] && exit $user_code
[ $root_code -eq 5 ] || exit $root_code
