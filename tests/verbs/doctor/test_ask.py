import threading
from pathlib import Path

from sessions import check_session


def test_worked_examples_of_questions() -> None:
    never = threading.Event()
    try:
        check_session(Path(__file__).with_name("ask.session"), {"never": never})
    finally:
        never.set()
