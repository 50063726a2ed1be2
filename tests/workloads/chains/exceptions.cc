// Chains of C++: exceptions in flight, std::function, virtual calls.
#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include "chains.h"

static volatile int one = 1;

struct Guard {
	int which;
	FUNC ~Guard();
};
FUNC Guard::~Guard()
{
	if (which == 2)
		stop();
}

struct Thrown {
	FUNC Thrown() {}
	FUNC Thrown(const Thrown &) { stop(); }
	FUNC ~Thrown();
};
static bool last_one;
FUNC Thrown::~Thrown()
{
	if (last_one)
		stop();
}

FUNC void throws() { throw 7; }
FUNC void owns_inner()
{
	Guard guard = { 1 };

	throws();
}
/* Its landing pad runs the destructor; what it had called is gone by then. */
FUNC void owns_outer()
{
	Guard guard = { 2 };

	owns_inner();
}
FUNC void handles()
{
	stop();
}
FUNC void catches()
{
	try {
		owns_outer();
	} catch (int) {
		handles();
	}
}

/* A copy is thrown: its constructor runs before the exception flies, its destructor when it has been handled. */
FUNC void throws_copy(const Thrown &thrown) { throw thrown; }
FUNC void catches_copy()
{
	Thrown thrown;

	try {
		throws_copy(thrown);
	} catch (const Thrown &) {
		last_one = true;
	}
	last_one = false;
}

FUNC void rethrows()
{
	try {
		throws();
	} catch (int) {
		Guard guard = { 2 };
		throw;
	}
}
FUNC void catches_again()
{
	try {
		rethrows();
	} catch (...) {
	}
}

FUNC void through_function(const std::function<void(int)> &function) { function(one); }
FUNC void makes_function()
{
	int captured = one;

	through_function([captured](int) __attribute__((noinline, noipa)) {
		if (captured)
			stop();
	});
}

struct Base {
	virtual void virtual_call() = 0;
	virtual ~Base() {}
};
struct Other {
	int number = 1;
	virtual void other_call() = 0;
	virtual ~Other() {}
};
struct Derived : Base, Other {
	FUNC void virtual_call() override { other(this); }
	/* Called by way of a thunk, which jumps. */
	FUNC void other_call() override { stop(); }
	FUNC static void other(Other *object) { object->other_call(); }
};
FUNC void calls_virtual(Base &base) { base.virtual_call(); }

template <typename T> FUNC void generic(T value)
{
	if (value)
		stop();
}

FUNC bool in_order(int a, int b)
{
	static bool stopped;

	if (!stopped)
		stop();
	stopped = true;
	return a < b;
}
FUNC void sorts()
{
	int values[] = { 3, 1, 2 };

	std::sort(values, values + 3, in_order);
}

FUNC void has_no_exceptions() noexcept { throws(); }
FUNC void terminates()
{
	stop();
	say("done\n");
	await_line();
	_exit(0);
}

int main()
{
	Derived derived;

	std::set_terminate(terminates);
	begin();
	catches();
	catches_copy();
	catches_again();
	makes_function();
	calls_virtual(derived);
	generic(one + 0);
	generic<const char *>("x");
	sorts();
	has_no_exceptions();
}
