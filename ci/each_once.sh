#!/bin/bash
# Run each test once: as an ordinary user, or as root what needs a real scheduler or root:
#
#     ci/isolated.sh ci/each_once.sh .venv/bin/python -n 8 -m "not integrations"
#
# Only inside ci/isolated.sh, as root. The user's tests are collected first, and name the
# files that have root's, so that all are read once. Root's, which mostly wait, run beside
# the others and are printed after them.
set -u
here=${0%/*}
code=0

ended() { # RC: 5 is pytest's for no test; a first failure is the result
    [ "$1" -eq 5 ] || [ $code -ne 0 ] || code=$1
}

of_root=$TMPDIR/of_root # the user writes it
install -m 666 /dev/null "$of_root"
# who tries tests again alone waits until the other part has ended, or does the same
export WEIGH_TESTS_BESIDE=$TMPDIR/beside
install -m 666 /dev/null "$WEIGH_TESTS_BESIDE"
{
    until [ -s "$of_root" ]; do sleep 0.1; done
    mapfile -t files < <(grep . "$of_root")
    [ ${#files[@]} -gt 0 ] || exit 5
    exec "$here/pytest.sh" "$@" --part=root "${files[@]}"
} >"$TMPDIR/root.log" 2>&1 &
unshare -m "$here/ordinary_user.sh" env WEIGH_TESTS_BESIDE="$WEIGH_TESTS_BESIDE" \
    "$here/pytest.sh" "$@" --part=user --of-root="$of_root"
ended $?
[ -s "$of_root" ] || echo >"$of_root" # there are none of root's
wait $!
ended $?
cat "$TMPDIR/root.log"
exit $code
