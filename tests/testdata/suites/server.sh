#!/bin/sh
# tenured in place of the ZooKeeper that a test suite starts, as its zkServer.sh or its
# java. The last argument is a zoo.cfg; system properties are other arguments or in
# SERVER_JVMFLAGS. TENURED is the program.
set -eu
for arg; do
	case $arg in -D*) SERVER_JVMFLAGS="${SERVER_JVMFLAGS-} $arg" ;; esac
done
export SERVER_JVMFLAGS
# On loopback alone, where the suites leave the address out; with HTTP where it disturbs none.
port=$(sed -n 's/^clientPort=//p' "$arg")
exec "$TENURED" --zoo-cfg "$arg" --zk-listen "127.0.0.1:$port" --listen 127.0.0.1:0
