"""A pipeline for the guide: 600 orders, and their number and sum per customer and five minutes. It makes two errors."""

import json
import sys
from collections import defaultdict
from typing import Any

from confluent_kafka import Producer

WINDOW_MS = 300_000
LOST, REPEATED, OMITTED = 17, 205, 209

producer = Producer({"bootstrap.servers": sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"})
windows: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
for number in range(600):
    placed_ms = 1_767_225_600_000 + 3_000 * number
    order = {"order": number, "customer": f"c{number % 4}", "placed_at": placed_ms, "amount": 10 + number % 7}
    producer.produce("orders", json.dumps(order))
    used = {LOST: 0, REPEATED: 2, OMITTED: 0}.get(number, 1)
    windows[f"c{number % 4}", placed_ms // WINDOW_MS * WINDOW_MS] += [order] * used
for (customer, start_ms), orders in windows.items():
    total = {"n": len(orders), "total": sum(one["amount"] for one in orders)}
    ids = {"order_ids": [one["order"] for one in orders]}
    producer.produce("totals", json.dumps({"customer": customer, "window_start": start_ms, **total, **ids}))
producer.flush()
