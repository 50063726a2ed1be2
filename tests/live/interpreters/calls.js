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
	const before = process.hrtime.bigint();
	for (let i = 0; i < 10; i++)
		waitInner();
	return process.hrtime.bigint() - before;
}

let sum = 0;
function burn(ms, work, n) {
	for (const end = Date.now() + ms; Date.now() < end;)
		sum += work(n);
}
function awaitLine() { fs.readSync(0, Buffer.alloc(16)); }
function say(line) { fs.writeSync(1, line + '\n'); }

// Compiled by then, as far as it will be.
burn(500, a, 5000000);
burn(500, loop, 5000000);
say(`ready ${process.pid}`);
awaitLine();
burn(2000, a, 5000000);
burn(1000, loop, 5000000);
say(`{"wait_ns": ${waitOuter()}, "sum": ${sum | 0}}`);
say('done');
awaitLine();
