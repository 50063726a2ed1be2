//! `--unwind`: each way is what it says.

use crate::prelude::*;
use crate::symbols::{HERTZ, all, assert_most, frames, stacks};
use crate::unwind_life::{MAIN, assert_samples, in_function, phases, whole};

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
	for (; now < start + 300000000; now = clock_ns(CLOCK_THREAD_CPUTIME_ID))
		((void (*)(long))made)(1000000);
	say("{\"late_ns\": %lld}\n", now - start);
	return finished();
}
"#;

#[test]
fn each_way_to_unwind_is_what_it_says() {
    let _machine = Machine::beside();
    let phases = phases("phases", MAIN);
    let made = Program::c("made", MADE, "");
    let report = |program: &Program, unwind: &str| {
        let options = format!("-F {HERTZ} --unwind {unwind}");
        traced("profile", &options, program.start("300")).0
    };
    let cfi = report(&phases, "cfi");
    assert_samples(&cfi, "phases", phases.path());
    let fp = report(&phases, "fp");
    // The register points nowhere: nobody is found above `burn`.
    let burnt: u64 = in_function(&fp, "burn").map(weight).sum();
    assert_most(burnt, all(&fp, "phases"), &fp);
    let whole_by_fp = whole(&fp, "late", phases.path()).1;
    assert!(whole_by_fp * 100 <= burnt, "{whole_by_fp} of {burnt}");

    for (unwind, depth) in [("auto", 4..9), ("fp", 2..9), ("cfi", 1..2)] {
        let report = report(&made, unwind);
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
        assert!(all > 200, "{unwind}: {all}");
        assert_within(unwind, right * 100, all * 98.., all);
    }
}
