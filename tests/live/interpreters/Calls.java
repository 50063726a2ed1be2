// The workloads' protocol, spoken by known functions: a -> b -> hot computes, loop -> mid -> leaf mostly makes and leaves
// frames, waitOuter -> waitInner sleeps.
public class Calls {
	static long hot(int n) {
		long sum = n;
		for (int i = 0; i < n; i++)
			sum = sum * 6364136223846793005L + 1;
		return sum;
	}
	static long b(int n) { return hot(n) + 1; }
	static long a(int n) { return b(n) + 1; }

	static int leaf(int x) { return x * 3 + 1; }
	static int mid(int x) { return leaf(x) + 1; }
	static int loop(int n) {
		int sum = 0;
		for (int i = 0; i < n; i++)
			sum = mid(sum);
		return sum;
	}

	static void waitInner(int ms) throws InterruptedException { Thread.sleep(ms); }
	static void waitOuter(int ms) throws InterruptedException { waitInner(ms); }

	static long sum;
	// By the clock and by the turns that a fast machine makes in that time: a late one makes as many.
	// When the small functions began.
	static long burn(long ms) {
		long end = System.nanoTime() + ms * 2000000;
		for (long i = 0; i < ms * 3 / 10 || System.nanoTime() < end; i++)
			sum += a(1000000);
		long small = System.nanoTime();
		end = small + ms * 1000000;
		for (long i = 0; i < ms / 10 || System.nanoTime() < end; i++)
			sum += loop(1000000);
		return small;
	}

	public static void main(String[] args) throws Exception {
		// Often enough for the best compiler to take each of them.
		for (int i = 0; i < 20000; i++) {
			sum += a(100) + loop(100);
			waitOuter(0);
		}
		burn(100);
		System.out.println("ready " + ProcessHandle.current().pid());
		System.in.read();
		long start = System.nanoTime();
		long small = burn(1000);
		long end = System.nanoTime();
		for (int i = 0; i < 10; i++)
			waitOuter(50);
		System.out.println("{\"start_ns\": " + start + ", \"small_ns\": " + small + ", \"end_ns\": " + end + ", \"waited_ns\": " + System.nanoTime() + ", \"sum\": " + sum + "}");
		System.out.println("done");
		while (System.in.read() >= 0)
			;
	}
}
