#!/usr/bin/env python3
"""Reads a journal of Tollgate, written from shared/LOG.md alone; it shares no code with Tollgate.

    tollgate_log.py journal DIR     every record of every stream, one JSON object a line
    tollgate_log.py records         records as hexadecimal lines on stdin: stream (hits, limits, denials), bytes

Tags and digests are not checked: they need BLAKE3, which the standard library lacks. What is unsound ends
the program with 1 and says where.
"""

import json
import pathlib
import struct
import sys
import zlib

VERSION = 1
TAG_BYTES = 16
OWNERS = {1, 5, 6, 7, 136}
STREAMS = {"hits": 0, "limits": 1, "denials": 2}
CAUSES = {1: "hard", 2: "global", 3: "inaccessible", 4: "unconfigured", 5: "blind", 6: "full", 7: "banned"}
CAUSES |= {8: "bucket", 9: "too many", 10: "not a rate"}
NUMBERED_CAUSES = ["tier", "window", "quota"]
HIT_KINDS = {0: "hit", 2: "charge", 4: "refund", 6: "estimate"}
SCOPES = ["pair", "resource", "group"]
ACTS = {
    1: ("reset", ["resource", "domain"]),
    2: ("pardon", ["resource", "domain"]),
    3: ("refund", ["resource", "domain", "hits"]),
    4: ("ban", ["resource", "domain", "until_us"]),
    5: ("unban", ["resource", "domain"]),
    6: ("release_hold", ["resource", "agent", "epoch", "number"]),
    7: ("release_holds", ["resource", "domain", "agent"]),
    8: ("switch", ["namespace", "ignore_configured", "allow_unconfigured"]),
    9: ("set", ["resource", "domain", "rate", "hard", "limit"]),
    10: ("release_transfer", ["resource", "transfer"]),
    11: ("set_many", ["rows"]),
}
OPERATIONS = {
    0: ("reserve", ["domain", "copies", "min"]),
    1: ("hold", ["domain", "copies"]),
    2: ("release", ["copies"]),
    3: ("transfer", ["copies", "transfer", "ttl_us"]),
    4: ("seize", ["transfer"]),
    5: ("cancel", []),
}


class Unsound(Exception):
    """What is not as LOG.md says."""


# ---- MessagePack: as much of it as records use ----

def unpack(data, at):
    """A value and where it ends."""
    if len(data) <= at:
        raise Unsound(f"byte {at}: cut off")
    head = data[at]
    at += 1
    if head <= 0x7F:
        return head, at
    if 0xE0 <= head:
        return head - 0x100, at
    if 0x90 <= head <= 0x9F:
        return elements(data, at, head & 0x0F)
    if 0xA0 <= head <= 0xBF:
        return text(data, at, head & 0x1F)
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    numbers = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    if head in numbers:
        return number(data, at, numbers[head])
    lengths = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I"}
    if head not in lengths:
        raise Unsound(f"byte {at - 1}: type {head:#x} is never used")
    length, at = number(data, at, lengths[head])
    if head <= 0xC6:
        return raw(data, at, length)
    return text(data, at, length) if head <= 0xDB else elements(data, at, length)


def number(data, at, form):
    end = at + struct.calcsize(form)
    if len(data) < end:
        raise Unsound(f"byte {at}: cut off")
    return struct.unpack_from(form, data, at)[0], end


def raw(data, at, length):
    if len(data) < at + length:
        raise Unsound(f"byte {at}: cut off")
    return bytes(data[at : at + length]), at + length


def text(data, at, length):
    value, at = raw(data, at, length)
    return value.decode("utf-8"), at


def elements(data, at, length):
    values = []
    for _ in range(length):
        value, at = unpack(data, at)
        values.append(value)
    return values, at


# ---- records ----

def named(names, values, what):
    if len(names) != len(values):
        raise Unsound(f"{what}: {len(values)} elements, expected {len(names)}")
    return {name: plain(value) for name, value in zip(names, values)}


def plain(value):
    return value.hex() if isinstance(value, bytes) else value


def sender(values):
    return named(["agent", "epoch", "sequence", "sent_us"], values, "sender")


def cause(value):
    if value < 256:
        return CAUSES[value]
    kind = NUMBERED_CAUSES[value // 256 - 1]
    return f"{kind} {value % 256}" if kind == "tier" else f"{kind}:{value % 256}"


def position(value):
    return value and named(["generation", "offset", "entry"], value, "position")


def hits(values):
    agent, epoch, sequence, sent, resources, entries, refused = values
    record = sender([agent, epoch, sequence, sent])
    record["hits"] = [hit(resources, sent, *entry) for entry in entries]
    record["refused"] = [
        {
            "resource": resources[index],
            "domain": domain,
            "calls": calls,
            "copies": copies,
            "first_us": sent - first,
            "last_us": sent - last,
            "cause": cause(why),
            "position": position(where),
        }
        for index, domain, calls, copies, first, last, why, where in refused
    ]
    return record


def hit(resources, sent, index, domain, age, copies, *rest):
    entry = {"resource": resources[index], "domain": domain, "at_us": sent - age, "copies": copies}
    calls, mark = rest[:2] if 2 <= len(rest) else (1, 0)
    entry |= {"calls": calls, "kind": HIT_KINDS[mark & ~1], "unguarded": mark & 1 == 1}
    entry["min"] = rest[-1] if len(rest) in (1, 3) else None
    if entry["kind"] == "refund":
        _, _, made, estimated = rest
        entry |= {"made_us": sent - made, "estimated": estimated, "actual": estimated - copies}
    return entry


def holds(values):
    agent, epoch, sequence, sent, resources, operations = values
    record = sender([agent, epoch, sequence, sent])
    record["operations"] = []
    for kind, index, hold, age, *rest in operations:
        name, fields = OPERATIONS[kind]
        done = {"op": name, "resource": resources[index], "number": hold, "at_us": sent - age}
        record["operations"].append(done | named(fields, rest, name))
    return record


def heartbeat(values):
    agent, epoch, sequence, sent, resources, replaces, more, last, parts = values
    record = sender([agent, epoch, sequence, sent])
    record |= {"resources": resources, "replaces": plain(replaces), "more": more, "last": last, "parts": []}
    for index, kind, awaiting, asked, *rest in parts:
        part = {"resource": resources[index], "awaiting": awaiting, "asked": asked}
        if kind == 0:
            part |= named(["digest"], rest, "part")
        else:
            first, upto, listed = rest
            fields = ["number", "domain", "copies", "start_us", "strict", "seized"]
            part |= {"from": first, "upto": upto, "listed": []}
            for entry in listed:
                entry[3] = sent - entry[3]
                part["listed"].append(named(fields, entry, "listed"))
        record["parts"].append(part)
    return record


def totals(values):
    fields = ["resource", "source_partition", "source_offset", "previous_offset", "first_ms", "counted"]
    record = named(fields, values, "totals")
    del record["previous_offset"]
    first = record.pop("first_ms")
    record["counted"] = [named(["ms", "copies", "unguarded"], total, "total") for total in record["counted"]]
    for total in record["counted"]:
        total["ms"] += first
    return record


def announced(values):
    generation, random, partition, resource, statement = values
    kind, name, where, says = statement
    record = {"generation": generation, "random": random, "partition": partition, "resource": resource}
    record |= {"scope": SCOPES[kind], "name": name or None, "position": position(where)}
    if says[0] == 0:
        record["says"] = "open"
    elif says[0] == 1:
        record |= {"says": "denied"}
        record |= named(["end_us", "cause", "version", "limit", "window_us", "most"], says[1:], "denial")
        record["cause"] = cause(record["cause"])
    else:
        record |= {"says": "near"} | named(["left", "end_us", "since_us"], says[1:], "near")
    return record


def document(values):
    if len(values) == 9:  # of an earlier build
        push, index, count, expected, _, who, why, at, text = values
        if (index, count) != (0, 1):
            raise Unsound(f"document: part {index} of {count}, expected 0 of 1")
        values = [push, expected, who, why, at, text.decode("utf-8", errors="replace")]
    return named(["push", "expected", "who", "why", "at_us", "text"], values, "document")


def amendment(values):
    push, expected, who, why, act, *rest = values
    name, fields = ACTS[act]
    record = named(["push", "expected", "who", "why"], [push, expected, who, why], "amendment")
    record |= {"act": name} | named(fields, rest, name)
    if "rows" in record:
        record["rows"] = [named(ACTS[9][1], row, "row") for row in record["rows"]]
    return record


def simply(*fields):
    return lambda values: named(list(fields), values, "record")


KINDS = {
    "hits": {
        1: ("genesis", simply("generation", "random")),
        2: ("hits", hits),
        3: ("holds", holds),
        4: ("heartbeat", heartbeat),
        5: ("tick", simply("generation", "random", "owner", "instance", "number")),
        6: ("totals", totals),
        7: ("limits activation", simply("version", "digest")),
        136: ("state digest", simply("offset", "rules", "form", "digest", "group", "owner", "instance")),
    },
    "limits": {1: ("genesis", simply("generation", "random")), 9: ("limits", document), 10: ("amendment", amendment)},
    "denials": {1: ("genesis", simply("generation", "random")), 8: ("announced", announced)},
}


def decode(stream, data):
    """A record of a stream."""
    if len(data) < 2 or data[0] != VERSION:
        raise Unsound(f"version {data[:1].hex()}, expected {VERSION:02x}")
    kind = data[1]
    if kind not in KINDS[stream]:
        if kind & 0x80:
            return {"kind": kind, "skipped": True}
        raise Unsound(f"kind {kind} is not known and may not be skipped")
    end = len(data) - (TAG_BYTES if kind in OWNERS else 0)
    name, read = KINDS[stream][kind]
    values, at = unpack(data[:end], 2)
    if at != end:
        raise Unsound(f"{name}: {end - at} bytes behind the end")
    return {"kind": name} | read(values)


# ---- where a pair belongs ----

def murmur2(data):
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if words < len(data):
        h = (h ^ int.from_bytes(data[words:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_of(resource, domain, partitions):
    key = resource.encode() + (b"\xff" + domain.encode() if domain is not None else b"")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


# ---- a journal ----

def frames(stream, partition, data, name):
    """Offset, append time in milliseconds and bytes of each record of a segment."""
    if len(data) < 32 or data[:8] != b"TGSEG01\n":
        raise Unsound(f"{name}: no segment")
    base, _floor, tag, crc = struct.unpack_from("<QQII", data, 8)
    if crc != zlib.crc32(data[:28]) or tag != STREAMS[stream] << 24 | partition:
        raise Unsound(f"{name}: its header does not fit")
    at, offset = 32, base
    while at + 20 <= len(data):
        length, appended, head, body = struct.unpack_from("<IQII", data, at)
        covered = struct.pack("<IQ", tag, offset) + data[at : at + 12]
        if head != zlib.crc32(covered):
            raise Unsound(f"{name}: byte {at}: the frame of offset {offset} does not fit")
        payload = data[at + 20 : at + 20 + length]
        if len(payload) < length:
            return  # Torn: whoever wrote it was killed, or is writing.
        if body != zlib.crc32(payload):
            raise Unsound(f"{name}: byte {at}: offset {offset} is damaged")
        yield offset, appended, payload
        at, offset = at + 20 + length, offset + 1


def journal(directory):
    lines = (directory / "journal").read_text().splitlines()
    if lines[0] != "tollgate-journal 1":
        raise Unsound(f"{lines[0]!r}: expected tollgate-journal 1")
    partitions = int(dict(line.split(" ", 1) for line in lines[1 : lines.index("end")])["partitions"])
    for stream in STREAMS:
        for partition in range(1 if stream == "limits" else partitions):
            for path in sorted((directory / f"{stream}-{partition:05}").glob("*.seg")):
                for offset, appended, data in frames(stream, partition, path.read_bytes(), path.name):
                    where = {"stream": stream, "partition": partition, "offset": offset, "appended_ms": appended}
                    record = decode(stream, data)
                    for entry in (record.get("hits", []) if stream == "hits" else []):
                        if partition_of(entry["resource"], entry["domain"], partitions) != partition:
                            raise Unsound(f"{stream} {partition}, offset {offset}: {entry} belongs elsewhere")
                    yield where | record


def main(arguments):
    try:
        if arguments[:1] == ["journal"] and len(arguments) == 2:
            for record in journal(pathlib.Path(arguments[1])):
                print(json.dumps(record))
        elif arguments == ["records"]:
            for line in sys.stdin:
                stream, data = line.split()
                print(json.dumps(decode(stream, bytes.fromhex(data))))
        else:
            sys.exit(__doc__)
    except (Unsound, OSError) as fault:
        sys.exit(f"tollgate_log: {fault}")


if __name__ == "__main__":
    main(sys.argv[1:])
