//! `--unwind`: each way is what it says.

use crate::beside::symbols::{HERTZ, all, assert_most, frames, stacks};
use crate::beside::unwind_life::{MAIN, assert_samples, both_phases, in_function, phases, whole};
use crate::prelude::*;
use crate::ticks::{assert_all_ticks, clock};

/// In memory of its own, without any table: push %rbp; mov %rsp,%rbp; a loop; pop %rbp; ret.
const MADE: &str = r#"
int main(int argc, char **argv)
{
	static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf9, 0x48,
					      0xff, 0xc9, 0x75, 0xfb, 0x5d, 0xc3 };
	void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(made, code, sizeof(code));
	ready();
	long long start = clock_ns(CLOCK_THREAD_CPUTIME_ID), now = start;
	/* A turn takes 250 us at 4 GHz: stolen time is no work. */
	for (int n = 0; now < start + 300000000 || n < 1200; n++) {
		((void (*)(long))made)(1000000);
		now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	}
	return finished();
}
"#;

#[test]
fn each_way_to_unwind_is_what_it_says() {
    let _machine = Machine::beside();
    let phases = phases("phases", MAIN);
    let made = Program::c("made", MADE, "");
    let options = |unwind: &str| format!("-F {HERTZ} --unwind {unwind}");
    let of_phases = |unwind: &str| both_phases("profile", &options(unwind), phases.start("300")).0;
    let cfi = of_phases("cfi");
    assert_samples(&cfi, "phases", phases.path());
    let fp = of_phases("fp");
    // The register points nowhere: nobody is found above `burn`.
    let burnt: u64 = in_function(&fp, "burn").map(weight).sum();
    assert_most(burnt, all(&fp, "phases"), &fp);
    let whole_by_fp = whole(&fp, "late", phases.path()).1;
    assert!(whole_by_fp * 100 <= burnt, "{whole_by_fp} of {burnt}");

    for (unwind, depth) in [("auto", 4..9), ("fp", 2..9), ("cfi", 1..2)] {
        let mut workload = made.start("");
        let tid = workload.pid();
        let clock = clock(HERTZ.parse().expect("a number"));
        let (report, _) = reported("profile", &options(unwind), &mut workload);
        let ticks = clock.take().expect("a whole log");
        workload.finish();
        let in_made = stacks(&report).iter().filter(|stack| {
            let leaf = stack["user"].as_array().and_then(|user| user.last());
            leaf.is_some_and(|leaf| leaf["module"].is_null() || leaf["kind"] == "jit")
        });
        let (mut all, mut right) = (0, 0);
        for stack in in_made {
            all += weight(stack);
            let ended = (stack["user_end"] == "root") == (unwind == "auto") || unwind == "fp";
            if depth.contains(&frames(stack, "user").len()) && ended {
                right += weight(stack);
            } else {
                eprintln!("{unwind}: {stack}");
            }
        }
        assert_all_ticks(sum(stacks(&report), "count"), &ticks, [tid].into_iter());
        assert_most(all, sum(stacks(&report), "count"), &report);
        assert_within(unwind, right * 100, all * 98.., all);
    }
}
