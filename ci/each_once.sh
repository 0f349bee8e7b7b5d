#!/bin/bash
# Run each test once: as an ordinary user, and as root what needs a real scheduler or root:
#
#     ci/isolated.sh ci/each_once.sh .venv/bin/python -n 8 -m "not integrations"
#
# Only inside ci/isolated.sh, as root. Root's tests, which mostly wait, run beside the
# others and are printed after them. What the user skipped comes last.
set -u
here=${0%/*}
code=0

ended() { # RC: 5 is pytest's for no test; a first failure is the result
    [ "$1" -eq 5 ] || [ $code -ne 0 ] || code=$1
}

"$here/pytest.sh" "$@" --part=root >"$TMPDIR/root.log" 2>&1 &
root=$!
skipped=$TMPDIR/skipped # the user writes it, too
install -m 666 /dev/null "$skipped"
unshare -m "$here/ordinary_user.sh" "$here/pytest.sh" "$@" --part=user --skipped="$skipped"
ended $?
wait $root
ended $?
cat "$TMPDIR/root.log"
# only their files are collected, for this runs when all else has ended
if [ -s "$skipped" ]; then
    mapfile -t files < <(sed 's/::.*//' "$skipped" | sort -u)
    "$here/pytest.sh" "$@" --part=skipped --skipped="$skipped" "${files[@]}"
    ended $?
fi
exit $code
