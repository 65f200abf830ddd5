"""Complete, commented configurations to start from; a test loads each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CLICKSTREAM: Final = """\
# Clicks are counted per page in windows of one minute (PGVal's SST workload).
#   click       {"id": 17, "page": "/help", "timestamp": "1970-01-01T00:00:03.250"}
#   output      {"page": "/help", "windowStart": "1970-01-01T00:00:00.000", "clickIds": [17], "updateIds": []}
#   lateOutput  {"clickId": 18, "page": "/news", "clickTimestamp": "1970-01-01T00:00:04.000"}
pipeline: clickstream              # label of every metric
guarantee: exactly_once            # what the pipeline claims: at_most_once | at_least_once | exactly_once

kafka:
  bootstrap_servers: 127.0.0.1:9092
  isolation_level: read_committed  # what the consumers of the results use
  options: {}                      # any client option; secrets as ${NAME} or ${file:PATH}

inputs:
  - topic: click
    format: json
    fields: {id: id, key: page, event_time: timestamp}

outputs:
  - topic: output
    emission: final                # every result counts; a repeated id is a duplicate
    evidence: ids                  # a result lists the ids of the events that it used
    fields: {key: page, window_start: windowStart, ids: [clickIds, updateIds]}

late:                              # where the engine writes late events
  - topic: lateOutput
    fields: {id: clickId, key: page, event_time: clickTimestamp}

rejected: []                       # dead-letter topics, in the same form as late
faults: {topic: faults}            # where a chaos tool reports its faults
engine: {consumer_group: null}     # the engine's group; if set, unconsumed events are not missing

oracle: {kind: tumbling_window, size: 60s, offset: 0s, time_zone: UTC, closed: left}

start: earliest                    # earliest | latest | an RFC 3339 time | group:ID

timing:
  max_disorder: 0s                 # how far an event may lie behind the newest of its partition
  allowed_lateness: 0s             # how long the engine accepts late events
  lateness_scope: null             # partition | idle | topic | task | global: whose times make events late
  idle_after: 10s                  # an idle partition stops holding back the watermark
  max_ahead: 1h                    # an event further ahead of the clock does not move the watermark
  overdue_after: 30s               # no result this long after the window closed: overdue
  missing_after: 120s              # no result this long after the window closed: missing
  clock_skew: 100ms
  late_policy: report              # events that the engine drops as late: missing (report) or tolerated (drop)

measures:                          # what a fault costs (docs/report.md)
  latency: window_close            # last_input | window_close | first_input
  moving_rate: 5s                  # window of the moving average of the output rate
  band_ratio: 0.15                 # recovered: the rate is within 15 % of the control phase's mean
  stable_for: 40s                  # and stays there for this long
  give_up_after: 300s              # recovery timeout, counted from healing

state: {path: ./state/clickstream, retention: 24h}   # relative to this file
spark: {master: "local[*]", options: {}}
metrics: {address: 127.0.0.1, port: 9464}
"""

MINIMAL: Final = """\
# The required settings; all others have a default (see docs/configuration.md).
pipeline: orders
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs:
  - topic: orders
    fields: {id: id, key: customer, event_time: {path: placed_at, unit: ms}}
outputs:
  - topic: totals
    fields: {key: customer, window_start: {path: window_start, unit: ms}, ids: order_ids}
oracle: {kind: tumbling_window, size: 5m}
state: {path: ./state/orders}
"""

SECURED: Final = """\
# A cluster that asks for a login, two inputs, a dead-letter topic, a key of two fields.
pipeline: payments
guarantee: at_least_once
kafka:
  bootstrap_servers: [broker-1.internal:9093, broker-2.internal:9093]
  options:
    security.protocol: SASL_SSL
    sasl.mechanism: SCRAM-SHA-512
    sasl.username: ${KAFKA_USER}
    sasl.password: ${KAFKA_PASSWORD}             # or ${file:/run/secrets/kafka-password}
inputs:
  - topic: card-payments
    fields: {id: id, key: [country, merchant.id], event_time: paid_at}
    duplicates: collapse                         # the pipeline is meant to drop repeated ids
  - topic: bank-payments
    fields: {id: $key, key: [country, merchant.id], event_time: $timestamp}
    duplicates: collapse
outputs:
  - topic: merchant-totals
    fields:
      key: [country, merchant_id]
      window_start: {path: window.start, unit: ms}
      window_end: {path: window.end, unit: ms}
      ids: [card_ids, bank_ids]                  # the inputs share one id space, so the lists are read as one
rejected:
  - topic: payments-dead-letter
    fields: {id: $header.payment-id, key: [country, merchant.id], event_time: paid_at}
engine: {consumer_group: payments-aggregator}
oracle: {kind: tumbling_window, size: 1h}
timing: {max_disorder: 5s, overdue_after: 1m, missing_after: 10m}
state: {path: ./state/payments, retention: 7d}
metrics: {address: 0.0.0.0, port: 9464}
"""

JOIN: Final = """\
# Clicks are joined with updates of their page in windows of one minute (PGVal's MST workload). A result has the ids of
# both; click 7 and update 7 are two events, so every list of ids and every late topic names its input.
#   click        {"id": 7, "page": "/help", "timestamp": "1970-01-01T00:00:03.250"}
#   update       {"id": 7, "page": "/help", "timestamp": "1970-01-01T00:00:30.000", "updatedBy": ""}
#   output       {"page": "/help", "windowStart": "1970-01-01T00:00:00.000", "clickIds": [7], "updateIds": [7]}
#   lateUpdates  {"updateId": 8, "page": "/help", "updateTimestamp": "1970-01-01T00:00:30.000"}
pipeline: click-updates
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs:
  - topic: click
    fields: {id: id, key: page, event_time: timestamp}
  - topic: update
    fields: {id: id, key: page, event_time: timestamp}
outputs:
  - topic: output
    fields:
      key: page
      window_start: windowStart
      ids: [{path: clickIds, input: click}, {path: updateIds, input: update}]
late:                                # one topic per input, since an id alone does not say which input it is from
  - topic: lateOutput
    input: click
    fields: {id: clickId, key: page, event_time: clickTimestamp}
  - topic: lateUpdates
    input: update
    fields: {id: updateId, key: page, event_time: updateTimestamp}
oracle:
  kind: windowed_join
  join: inner                        # inner: both sides must have an event; left: a left event alone has a result, too
  left: click                        # the side with more events, if there is a choice
  right: update
  size: 60s
state: {path: ./state/click-updates}
"""

FILTER: Final = """\
# Orders that are paid or refunded are copied to another topic, with id, customer and time.
#   orders       {"order": "o-17", "customer": 4, "status": "paid", "ordered_at": "2026-01-01T10:00:00.250Z"}
#   paid-orders  {"order": "o-17", "customer": 4, "ordered_at": "2026-01-01T10:00:00.250Z", "total": 12.5}
pipeline: paid-orders
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs:
  - topic: orders
    fields: {id: order, key: customer, event_time: ordered_at}
outputs:
  - topic: paid-orders
    evidence: id                       # a result carries the id of its one event
    fields: {key: customer, event_time: ordered_at, id: order}
oracle:
  kind: filter                         # passthrough and map have the same form, without where
  bucket: 10s                          # a result's time must be in the same bucket as its event's time
  where: {path: status, one_of: [paid, refunded]}    # or bounds: {path: total, at_least: 10, below: 100}
state: {path: ./state/paid-orders}
"""

COUNTS: Final = """\
# Clicks are counted per page in windows of 15 s. The results do not say which clicks they counted.
#   clicks   {"page": "/help", "timestamp": "2026-01-01T10:00:03.250Z"}
#   counts   {"page": "/help", "windowStart": "2026-01-01T10:00:00Z", "count": 37}
pipeline: click-counts
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs:
  - topic: clicks
    fields: {key: page, event_time: timestamp}      # no id is needed
outputs:
  - topic: counts
    evidence: values                   # a result states how many events it used
    fields: {key: page, window_start: windowStart, values: {clicks: count}}
oracle:
  kind: tumbling_window
  size: 15s
  values: {clicks: count}              # name: aggregate
state: {path: ./state/click-counts}
"""

SCHEMA_FILE: Final = Path(__file__).with_name("streamproof.schema.json")
"""The JSON Schema of this version (`validator.config.schema`)."""
_PIPELINES: Final = Path(__file__).with_name("pipelines")
"""Folder with the pipelines of docs/pipelines.md."""

EXAMPLES: Final[dict[str, str]] = {
    "clickstream": CLICKSTREAM,
    "minimal": MINIMAL,
    "secured": SECURED,
    "join": JOIN,
    "filter": FILTER,
    "counts": COUNTS,
    # Their first line names the schema by its place in a checkout.
    **{file.stem: file.read_text(encoding="utf-8").partition("\n")[2] for file in sorted(_PIPELINES.glob("*.yaml"))},
}
"""Name -> YAML text, without the lines of `for_editors`."""


def for_editors() -> str:
    """The first lines of a file that a command prints. They name the schema of this installation."""
    return f"""\
# yaml-language-server: $schema={SCHEMA_FILE.as_uri()}
# By the schema an editor completes and checks this file. On another machine: streamproof config schema > FILE.
"""
