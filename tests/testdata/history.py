"""Does random operations with kazoo and prints each as a line of JSON, with the times of a
clock that all processes of the machine share.

    history.py HOSTS CHROOT SEED CLIENTS SECONDS
"""

import json
import logging
import random
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

ANSWERS = {NodeExistsError: -110, NoNodeError: -101, BadVersionError: -103}
printing = threading.Lock()


def emit(**line):
    with printing:
        print(json.dumps(line), flush=True)


class Source:
    """One client: does one operation after the other."""

    def __init__(self, hosts, chroot, seed):
        self.random = random.Random(seed)
        self.client = KazooClient(hosts=hosts + chroot, timeout=10, connection_retry={"max_tries": -1})
        self.versions = {}
        self.newest = (None, {})  # session, highest mzxid seen of each key

    def seen(self, key, session, stat):
        if session != self.newest[0]:
            self.newest = (session, {})
        if session == self.client.client_id:
            self.newest[1][key] = max(self.newest[1].get(key, 0), stat.mzxid)

    def read_old(self, key):
        session = self.client.client_id
        stat = self.client.get(key)[1]
        now, newest = self.newest
        if session == now == self.client.client_id and stat.mzxid < newest.get(key, 0):
            emit(fault="a read of %s gave zxid 0x%x, before it had seen 0x%x" % (key, stat.mzxid, newest[key]))
        self.seen(key, session, stat)

    def choose(self):
        """Returns what to do, as (operation, key, version)."""
        kind = self.random.randrange(7)
        if kind < 3:
            key, op = "/r%d" % self.random.randrange(2), self.random.choice(["get", "set"])
        elif kind < 5:
            key, op = "/n%d" % self.random.randrange(3), self.random.choice(["get", "set", "create", "delete"])
        elif kind < 6:
            key, op = "/sequence", self.random.choice(["create", "count"])
        else:
            key, op = "/pair", self.random.choice(["get", "set"])
        version = self.versions.get(key, -1) if self.random.randrange(2) else -1
        return op, key, version

    def call(self, op, key, value, version):
        """Does it and returns value, version and number of the answer."""
        client, session = self.client, self.client.client_id
        if key == "/sequence" and op == "create":
            return "", 0, int(client.create(key + "/", b"", sequence=True)[len(key) + 1:])
        if op in ("get", "count"):
            client.sync(key)
        if op == "count":
            return "", 0, client.exists(key).numChildren
        if op == "create":
            client.create(key, value.encode())
            return "", 0, 0
        if op == "delete":
            client.delete(key, version)
            return "", 0, 0
        if op == "set" and key == "/pair":
            transaction = client.transaction()
            transaction.set_data(key, value.encode(), version)
            transaction.set_data(key + "-b", value.encode(), version)
            results = transaction.commit()
            for result in results:
                if isinstance(result, Exception):
                    raise result
            (stat, other), data = results, b""
            if (stat.mzxid, stat.version) != (other.mzxid, other.version):
                emit(fault="one transaction set %s and %s" % (stat, other))
        elif op == "set":
            stat, data = client.set(key, value.encode(), version), b""
        else:
            data, stat = client.get(key)
        self.seen(key, session, stat)
        self.versions[key] = stat.version
        return data.decode(), stat.version, 0

    def operate(self):
        if self.random.randrange(6) == 0:
            try:
                self.read_old("/r%d" % self.random.randrange(2))
            except KazooException:
                time.sleep(0.02)
            return
        op, key, version = self.choose()
        value = str(self.random.getrandbits(32))
        line = {"op": op, "key": key, "value": value, "version": version, "call": time.monotonic_ns()}
        try:
            line["out"], line["outVersion"], line["number"] = self.call(op, key, value, version)
        except tuple(ANSWERS) as answer:
            line["code"] = ANSWERS[type(answer)]
        except (KazooException, KazooTimeoutError):
            line["unknown"] = True
        line["return"] = time.monotonic_ns()
        emit(**line)
        if line.get("unknown"):
            time.sleep(0.02)

    def run(self, end):
        self.client.start(timeout=30)
        while time.monotonic() < end:
            self.operate()
        self.client.stop()
        self.client.close()


def main():
    hosts, chroot, seed, clients, seconds = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    end = time.monotonic() + float(seconds)
    sources = [Source(hosts, chroot, "%s-%d" % (seed, i)) for i in range(int(clients))]
    threads = [threading.Thread(target=source.run, args=(end,)) for source in sources]
    for i, thread in enumerate(threads):
        thread.start()
    for thread in threads:
        thread.join()


main()
