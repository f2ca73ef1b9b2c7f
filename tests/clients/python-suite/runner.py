"""The command line of a Python family's program, as tests/clients/README.md lays down."""

import argparse
import os
import sys
import threading
import time
import traceback

import groups
import scenarios
import txns
from scenarios import Kit

SCENARIOS = scenarios.SCENARIOS | groups.SCENARIOS | txns.SCENARIOS

SCENARIO_S = 100


def main(client_class, lacks=()):
    for protocol in {"cooperative", "consumer"}.difference(client_class.group_protocols):
        lacks = {*lacks, f"group-{protocol}", f"group-rolling-{protocol}"}
    names = [name for name in SCENARIOS if name not in lacks]
    parser = argparse.ArgumentParser(prog="run")
    parser.add_argument("--bootstrap")
    parser.add_argument("--only", choices=names)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--data-dir")
    # For the program's own use: topic, group and protocol of a member that may be killed.
    parser.add_argument("--member", nargs=3, help=argparse.SUPPRESS)
    # The same: source, sink and number of records of a pipeline.
    parser.add_argument("--pipeline", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(names))
        return
    if not arguments.bootstrap:
        parser.error("--bootstrap is missing")
    if arguments.member:
        groups.serve(client_class(arguments.bootstrap), *arguments.member)
        return
    if arguments.pipeline:
        txns.serve(lambda: client_class(arguments.bootstrap), *arguments.pipeline)
        sys.stdout.flush()
        os._exit(0)
    failed = False
    for name in [arguments.only] if arguments.only else names:
        failed |= not run(client_class, arguments.bootstrap, name)
    # A scenario that hangs must not hold the process.
    sys.stdout.flush()
    os._exit(1 if failed else 0)


def run(client_class, bootstrap, name):
    failure = [f"not finished after {SCENARIO_S} s"]

    def scenario():
        try:
            client = client_class(bootstrap)
            try:
                kit = Kit(client, name)
                with kit.open:
                    SCENARIOS[name](kit)
            finally:
                client.close()
            failure[0] = None
        except BaseException as error:
            traceback.print_exc()
            failure[0] = " ".join(f"{type(error).__name__}: {error}".split())

    began = time.monotonic()
    thread = threading.Thread(target=scenario, daemon=True)
    thread.start()
    thread.join(SCENARIO_S)
    print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    reason = failure[0]
    print(f"ok {name}" if reason is None else f"not ok {name}: {reason}", flush=True)
    return reason is None
