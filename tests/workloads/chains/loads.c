/* Calls into a library that is there, and into one that is being loaded. */
#include <dlfcn.h>
#include "chains.h"

long library_nothing(long x);
void library_entry(void);
void resolved(void);

FUNC long plt_storm(void)
{
	long x = 0;

	for (unsigned long lap = 0; lap < laps; lap += 10) {
		x = library_nothing(x);
		compute(40);
	}
	return x;
}
FUNC void calls_library(void) { library_entry(); }
FUNC void binds(void) { resolved(); }
FUNC void opens(const char *path)
{
	setenv("CONSTRUCT", "1", 1);
	if (!dlopen(path, RTLD_NOW))
		_exit(1);
}

int main(int argc, char **argv)
{
	begin();
	if (argc != 2 || !plt_storm())
		return 1;
	calls_library();
	binds();
	opens(argv[1]);
	return end();
}
