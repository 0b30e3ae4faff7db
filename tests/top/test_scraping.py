"""Pages of metrics, as nodes write them."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from kbroker.observe.metrics.exposition import line
from kbroker.tools.top.scraping import MAX_BYTES, CannotScrape, Value, scrape, scrape_of, values_of
from tests.patience import SHORT

PAGE = """\
# HELP kafka_server_brokertopicmetrics_bytesin_total Bytes.
# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total 70
kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 70
kafka_server_brokertopicmetrics_bytesout_total{topic="orders"} 210
kafka_network_requestmetrics_requests_total{request="Produce",version="12"} 30
kafka_network_requestmetrics_requests_total{request="Produce",version="11"} 3
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.50"} 0.5
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 4
kafka_network_requestmetrics_localtimems{request="Produce",quantile="0.99"} 3.5
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 33
kafka_server_app_info_starttimems{id="2"} 1764115200000
kafka_consumergroup_lag_seconds{consumergroup="g",topic="orders",partition="0"} 3
kafka_consumergroup_lag_seconds{consumergroup="g",topic="orders",partition="1"} 7.5
kafka_server_socket_server_metrics_connection_count{listener="A",networkProcessor="0"} 2
kafka_server_socket_server_metrics_connection_count{listener="B",networkProcessor="0"} 3
process_resident_memory_bytes 1000
process_cpu_seconds_total 12.5
kbroker_event_loop_turn_ms{quantile="0.99"} 2
this is no value
"""


def test_a_page() -> None:
    found = scrape_of(PAGE, "u", 5.0)
    assert (found.node, found.bytes_in, found.bytes_out) == (2, {"orders": 70.0}, {"orders": 210.0})
    [times] = found.requests
    assert (times.api, times.count, times.middle, times.slow, times.stages) == ("Produce", 33, 0.5, 4.0, {"local": 3.5})
    assert found.lag_seconds == {"g": {("orders", 0): 3, ("orders", 1): 7.5}}
    assert (found.connections, found.memory, found.cpu_seconds, found.turn_ms) == (5.0, 1000.0, 12.5, 2.0)


def test_labels_come_out_as_a_node_writes_them() -> None:
    odd = 'a"b\\c\nd,e="f"'
    assert list(values_of(line("x", {"group": odd, "n": "1"}, 2.5))) == [Value("x", {"group": odd, "n": "1"}, 2.5)]
    assert [each.value for each in values_of("x NaN\nx +Inf 1764115200000\n")][1] == float("inf")


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
        elif self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/metrics")
            self.end_headers()
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode() * (MAX_BYTES // len(PAGE) + 1 if self.path == "/large" else 1))

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_page_is_read_over_http(address: str) -> None:
    assert scrape(f"{address}/metrics", 5.0, SHORT) == scrape_of(PAGE, f"{address}/metrics", 5.0)


def test_a_page_that_cannot_be_had_is_one_line(address: str) -> None:
    for path, problem in (("missing", "answers with 404"), ("moved", "answers with 302"), ("large", "is larger than")):
        with pytest.raises(CannotScrape, match=problem) as told:
            scrape(f"{address}/{path}", 0.0, SHORT)
        assert "\n" not in str(told.value)
    with pytest.raises(CannotScrape, match="refused"):
        scrape("http://127.0.0.1:1/metrics", 0.0, SHORT)
