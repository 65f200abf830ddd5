"""Changes of the verdict are sent to the addresses of `notify`, once each, and their secrets are in no message."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.publish_snapshots import broken, clean, config
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.notify import Notification
from validator.model.classes import Guarantee, Verdict
from validator.publish import notifier
from validator.publish.notifier import NotDelivered, Notifier, body_of, message_of, post
from validator.publish.report import build
from validator.settings.errors import ConfigError

pytestmark = pytest.mark.unit

SECRET = "T0/B0/planted"
PASSES, FAILS = build(clean()), build(broken())
DOUBTED = build(replace(clean(), verdicts=dict.fromkeys(Guarantee, Verdict.UNKNOWN), reasons=("nothing is read",)))


class Place:
    """An address that keeps what it gets, and answers with ``status``."""

    def __init__(self) -> None:
        self.status = 200
        self.asked = 0
        self.got: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked += 1
                if outer.status == 200:
                    outer.got.append(json.loads(body))
                self.send_response(outer.status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.entry = Notification.model_validate({"url": f"http://127.0.0.1:{self.server.server_port}/{SECRET}"})


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(notifier, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(notifier, "_RETRY_SECONDS", (0.05,))
    found = Place()
    yield found
    found.server.shutdown()
    found.server.server_close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_change_is_sent_once_also_over_restarts_and_daily_until_it_is_acknowledged(
    place: Place, tmp_path: Path
) -> None:
    said: list[str] = []
    first = Notifier([place.entry], tmp_path, said.append)
    first.update(PASSES)
    first.update(DOUBTED)  # it does not last for a minute
    first.update(FAILS)
    until(lambda: len(place.got) == 1)
    first.update(FAILS)
    first.close()
    assert (place.got[0]["previous"], place.got[0]["verdict"]) == ("pass", "fail")
    assert place.got[0]["text"].startswith("Pipeline clickstream breaks its exactly-once guarantee (pass -> fail): 3 ")

    def run_again(report: Any) -> int:
        again = Notifier([place.entry], tmp_path, said.append)
        again.update(report)
        again.close()
        return len(place.got)

    assert run_again(FAILS) == 1
    file = tmp_path / "notified.json"
    assert SECRET not in file.read_text()
    [(name, kept)] = json.loads(file.read_text()).items()
    file.write_text(json.dumps({name: {**kept, "at": kept["at"] - 86_401}}))
    assert run_again({**FAILS, "violations_unacknowledged": 0}) == 1
    assert run_again(FAILS) == 2
    assert "still fail" in place.got[1]["text"]
    assert said == []


def test_a_doubt_is_sent_if_it_lasts_and_at_the_end_of_a_run_with_once(place: Place, tmp_path: Path) -> None:
    live = Notifier([place.entry], tmp_path / "live", lambda _: None, settle_seconds=0.2)
    (tmp_path / "live").mkdir()
    live.update(DOUBTED)
    until(lambda: len(place.got) == 1)
    live.close()
    (tmp_path / "once").mkdir()
    once = Notifier([place.entry], tmp_path / "once", lambda _: None, settle_seconds=0.0)
    once.update(DOUBTED)
    once.close()
    assert [got["reason"] for got in place.got] == ["nothing is read"] * 2


def test_a_message_that_is_refused_is_sent_again_and_no_line_has_the_address(place: Place, tmp_path: Path) -> None:
    said: list[str] = []
    place.status = 302  # no redirect is followed
    sender = Notifier([place.entry], tmp_path, said.append)
    sender.update(FAILS)
    until(lambda: place.asked >= 3)
    assert said == ["the change to fail was not delivered: 127.0.0.1 answered with status 302; trying again"]
    place.status = 200
    until(lambda: len(place.got) == 1)
    sender.close()
    place.server.server_close()
    with pytest.raises(NotDelivered, match=r"^127\.0\.0\.1 does not answer") as refused:
        post(place.entry, message_of(FAILS, "pass"))
    assert SECRET not in str(refused.value) + repr(place.entry)


def test_forms_and_templates_escape_what_comes_from_records() -> None:
    message = {**message_of(FAILS, "pass"), "text": 'a "quoted" <b> & more'}

    def body(**given: str) -> tuple[str, str]:
        return body_of(Notification.model_validate({"url": "https://h/p", **given}), message)

    assert json.loads(body()[0]) == message
    assert json.loads(body(form="slack")[0]) == {"text": 'a "quoted" &lt;b&gt; &amp; more'}
    filled, kind = body(template='{"summary": "{text}", "verdict": "{verdict}"}')
    assert (json.loads(filled), kind) == ({"summary": message["text"], "verdict": "fail"}, "application/json")
    assert body(template="{verdict}: {text}") == (f"fail: {message['text']}", "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"url": "ftp://h/x"}, "it is not an address; write https://HOST/PATH"),
        ({"url": "https://h/x", "template": "{verdikt}"}, "{verdikt} is not replaced"),
        ({"form": "json"}, "notify[0].url"),
    ],
)
def test_an_entry_that_cannot_work_is_refused(tmp_path: Path, entry: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loads(EXAMPLES["clickstream"], tmp_path, [f"notify=[{json.dumps(entry)}]"], environment={})
    assert said in str(refused.value)
    assert "ftp" not in str(refused.value)


def test_the_variable_of_an_address_is_a_secret(tmp_path: Path) -> None:
    text = EXAMPLES["clickstream"] + '\nnotify: [{url: "${HOOK}"}]\n'
    loaded = loads(text, tmp_path, environment={"HOOK": "https://h/x"})
    assert loaded.secret_variables >= {"HOOK"}
    assert config(tmp_path).notify == ()
