#!/bin/sh
# Runs a program that ends with whoever started it, in whatever way that ends: it is killed when this script's standard input
# ends, which should be a pipe of the starter's. The program takes the place of this script, and so has its process id.
# usage: tied.sh PROGRAM [ARGUMENT...]
exec 3<&0
# The watcher keeps nothing else open, so that nobody waits for it.
{ read -r never; kill -KILL $$; } <&3 3<&- >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-
