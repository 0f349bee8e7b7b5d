from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from transcript import check_answers

from weigh.schedulers.shell import read_body, tokens

# what shell text is made of, so that hypothesis finds its corners
PIECES = st.sampled_from(
    (
        *("a", "'", '"', "\\", "\n", " ", "$(", ")", "${", "}", "<<E\n", "E\n"),
        *("((", "))"),
        *("case x in", "esac", "if", "fi", "for", ";;", "&", "|", ";", "#", "`", "x=("),
        *("<(", "function ", ">", "2>"),
    )
)
TEXTS = st.lists(PIECES).map("".join)


def names(text: str) -> str:
    """Return the commands of a text, in which \\n begins a line."""
    found = read_body(text.replace("\\n", "\n").replace("\\t", "\t")).commands
    return " ".join(one.name for one in found)


def test_the_commands_of_a_text_are_those_that_bash_runs() -> None:
    path = Path(__file__).with_name("shell_commands.texts")
    check_answers(path, {"commands": names})


def test_a_word_keeps_what_its_quotes_hold() -> None:
    (command,) = read_body("parallel -a 'tasks_'\"$ID\"'.txt' \"a b\"").commands
    assert command.words == ("parallel", "-a", "tasks_$ID.txt", "a b")


def test_a_substitution_is_part_of_its_word() -> None:
    body = read_body("x=$(ls | wc -l) y=`a; b` python $((1 + 2)) ${a[@]}")
    (command,) = body.steps
    assert command.words == ("python", "$((1 + 2))", "${a[@]}")
    assert command.assigned == ("x=$(ls | wc -l)", "y=`a; b`")
    assert [one.name for one in body.commands] == ["python", "ls", "wc"]


def test_a_here_document_holds_no_commands() -> None:
    body = read_body("cat <<'EOF' | sh\nrm -rf x\nEOF\nnext <<-A\n\tb\n\tA\nlast\n")
    assert body.documents == {2, 3, 5, 6}


def test_a_line_that_goes_on_is_one_command_at_its_first_line() -> None:
    (command,) = read_body("\npython train.py \\\n  --lr 1\n").commands
    assert (command.line, command.words[-2:]) == (2, ("--lr", "1"))


def test_functions_are_known_by_name() -> None:
    assert read_body("f() { a; }\nfunction g { b; }\n").functions == {"f", "g"}


@given(TEXTS)
def test_any_text_is_read_and_lines_count_on(text: str) -> None:
    lines = [one.line for one in tokens(text)]
    assert lines == sorted(lines)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)
    read_body(text)


@given(TEXTS)
def test_tokens_are_pieces_of_the_text_in_their_order(text: str) -> None:
    place = 0
    for one in tokens(text):
        place = text.index(one.text, place) + len(one.text)
