// The workloads' protocol, spoken by known functions: a -> b -> hot computes, loop -> mid -> leaf mostly makes and leaves
// frames, waitOuter -> waitInner sleeps.
'use strict';
const fs = require('fs');

function hot(n) {
	let sum = 0;
	for (let i = 0; i < n; i++)
		sum = sum * 31 + (i & 7) | 0;
	return sum;
}
function b(n) { return hot(n) + 1; }
function a(n) { return b(n) + 1; }

function leaf(x) { return x * 3 + 1 | 0; }
function mid(x) { return leaf(x) + 1 | 0; }
function loop(n) {
	let sum = 0;
	for (let i = 0; i < n; i++)
		sum = mid(sum);
	return sum;
}

const nap = new Int32Array(new SharedArrayBuffer(4));
function waitInner() { return Atomics.wait(nap, 0, 0, 50); }
function waitOuter() {
	for (let i = 0; i < 10; i++)
		waitInner();
}
function now() { return process.hrtime.bigint(); }

let sum = 0;
// By the clock and by the turns that a fast machine makes in that time: a late one makes as many.
function burn(ms, turns, work) {
	const end = Date.now() + ms;
	for (let i = 0; i < turns || Date.now() < end; i++)
		sum += work(5000000);
}
function awaitLine() { fs.readSync(0, Buffer.alloc(16)); }
function say(line) { fs.writeSync(1, line + '\n'); }

// Compiled by then, as far as it will be.
burn(500, 100, a);
burn(500, 20, loop);
say(`ready ${process.pid}`);
awaitLine();
const start = now();
burn(2000, 400, a);
const small = now();
burn(1000, 40, loop);
const end = now();
waitOuter();
say(`{"start_ns": ${start}, "small_ns": ${small}, "end_ns": ${end}, "waited_ns": ${now()}, "sum": ${sum | 0}}`);
say('done');
awaitLine();
