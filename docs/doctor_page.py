"""docs/doctor.md: how kbroker doctor and bundle are used, and the table of all checks."""

from __future__ import annotations

from kbroker.tools.doctor.checklist import all_checks

_BEGIN = """\
`kbroker doctor` says what is wrong, how it knows, and what to do. It looks at

- a **cluster**, from where it runs: `-b HOST:PORT`, with `--command-config FILE` where it is secured;
- a **client**: the same with the client's own properties file, so that what keeps the client out keeps the doctor
  out, and is explained;
- a **configuration**, before its node is started: `-c server.properties`, with the data directories and this machine.
  `-o NAME=VALUE` and `--data-dir` are those of `kbroker start`.

Without any of them it looks at this machine, and at the cluster at the default address.

```console
$ kbroker doctor -b kafka-1:9092
cluster: kafka-1:9092: 5L6g3nShT-eMCtK--X86sw, 3 brokers
client: the default: PLAINTEXT

ERROR broker 2 (advertised-reachable)
  Clients are sent to kafka-2:9092 for broker 2, and cannot get there from this machine.
  how it is known: The metadata says so, and kafka-2: the name is not known (Name or service not known).
  what to do: kafka-2 looks like the name of a container or a host of another network. Set advertised.listeners to
  a name that clients know, on a listener of its own for those outside.
  see docs/operations.md#clients

1 error (46 checks)
```

It works on kbroker and on Apache Kafka: it asks by the protocol alone, and what a broker is too old to answer, or may
not tell this client, is a note. It changes nothing and writes nothing. Each question is bounded by `--timeout`
(10 s), brokers are asked at the same time. An address with TLS is connected to with versions before 1.2, too, and one
that refuses the client in other ways, to say why. A broker may log such handshakes, which fail.

Groups that have members are looked at twice, ten seconds apart (`--look-again`): whether a group rebalances for ever,
or is stuck, is seen only so. `--json` writes one document. The exit code is 1 if there is an error, else 0;
warnings and notes leave it 0. `--only CHECK` and `--skip CHECK` choose checks, `--list` names them.

## Checks

"""

_BETWEEN = """
What it cannot know: clocks of other brokers than the active controller, unless one is ahead and has written into
internal topics; the limit of open files of a node on another machine; what other clients see from where they are.
A throttle time is noticed only if the doctor's own first request has one.

## A bundle

`kbroker bundle` takes the same options, and packs into a file:

| File | Content |
| --- | --- |
| `versions.json`, `machine.json` | kbroker, Python, packages; system, limits, memory |
| `configuration.properties`, `client.properties` | what `-c` and `--command-config` name |
| `facts.json`, `configs.json` | cluster, topics, groups, listeners as the doctor saw them; configs of brokers |
| `doctor.txt`, `doctor.json` | what the doctor says |
| `data.json` | names and sizes of the files in data directories |
| `logs/` | the last 2000 lines of each log that `--log` names, a file or a directory |

Passwords, keys and tokens are hidden: what the tables of properties say is secret, what has the name of a secret,
what a config provider has given, and all that looks like it in logs. Values of environment variables, and keys,
values and headers of records are not in it. Names are: of topics, groups, clients and hosts. Look through it before you
send it.
"""


def page(note: str) -> str:
    """All of it, with the table of checks."""
    checks = all_checks()
    lines = ["| Check | Subject | Looks for | More |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{each.name}` | {each.subject} | {each.summary} | [{each.see}]({each.see}) |" for each in checks.values()
    ]
    return "\n".join(["# The doctor", "", note, _BEGIN + "\n".join(lines), _BETWEEN])
