//! Symptom, command, reading, trap: the one table behind README, `man usekit` and the tools' `next:` lines.
//!
//! A test of the documents holds them together. Text is Markdown: what is typed stands between back quotes.

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Symptom {
    /// Complaint of a user.
    pub symptom: &'static str,
    /// Command that looks first. PID, PATH and the like stand for what the reader knows; empty: none of ours.
    pub command: &'static str,
    /// Sense of what it prints, and the commands that follow.
    pub reading: &'static str,
    /// Mistake that is easily made.
    pub trap: &'static str,
}

impl Symptom {
    /// Commands of this project in the row, without `sudo`: words, of which the first is the tool.
    pub fn commands(&self) -> impl Iterator<Item = Vec<&'static str>> + use<> {
        let texts = [self.command, self.reading, self.trap];
        let codes = texts
            .into_iter()
            .flat_map(|text| text.split('`').skip(1).step_by(2));
        codes.map(|code| {
            let words = code.split_whitespace();
            words.skip_while(|word| *word == "sudo").collect()
        })
    }
}

/// Options that mean the same in every tool, and need no row.
const TARGETS: [&str; 4] = ["-p", "-t", "--comm", "--cgroup"];

/// Looks whether the table has a command's tool, and that tool's options.
pub fn has(command: &str) -> bool {
    let options = |words: &[&str]| -> Vec<String> {
        let own = words.iter().take_while(|word| **word != "--");
        let options = own.filter(|word| word.starts_with('-'));
        options.map(|&word| word.to_owned()).collect()
    };
    let words: Vec<&str> = command.split_whitespace().collect();
    let Some(tool) = words.first() else {
        return false;
    };
    let mut of_tool = SYMPTOMS
        .iter()
        .flat_map(Symptom::commands)
        .filter(|row| row.first() == Some(tool))
        .peekable();
    let is_there = of_tool.peek().is_some();
    let known: Vec<String> = of_tool.flat_map(|row| options(&row)).collect();
    let mut wanted = options(&words[1..]).into_iter();
    is_there && wanted.all(|option| TARGETS.contains(&&*option) || known.contains(&option))
}

/// All rows, in the order of the documents.
pub const SYMPTOMS: [Symptom; 19] = [
    Symptom {
        symptom: "No idea, \"it is slow\"",
        command: "`sudo pressure 2`",
        reading: "what is short, who loses, who causes it; then its `next:` lines",
        trap: "victims and culprits are two lists, not pairs",
    },
    Symptom {
        symptom: "A program is slow, and nobody knows which",
        command: "`sudo why`",
        reading: "who loses most, all of its time, and who causes it; another: `sudo why -p PID`",
        trap: "processes of one name are one: `sudo why --all` has all",
    },
    Symptom {
        symptom: "One program is slow",
        command: "`sudo why -p PID`",
        reading: "all of its time in one table, who causes the largest part; then its `next:` line",
        trap: "idleness is no trouble: shares in sentences are without it",
    },
    Symptom {
        symptom: "A service is slow, CPUs are not busy",
        command: "`sudo offcputime -p PID 30 -o wait.html`",
        reading: "futex: `sudo lockstat -p PID 10`; block-io: `sudo biolatency -P 5 1`; `sudo offcputime --waker -p PID 10`",
        trap: "a pool that waits for work is idle, and no trouble",
    },
    Symptom {
        symptom: "A CPU is busy",
        command: "`sudo profile -p PID 30 -o cpu.html -o cpu.json`",
        reading: "functions by their own time; `flame top cpu.json`, `flame peek cpu.json FUNCTION`",
        trap: "shares are of samples: the first line has the CPUs",
    },
    Symptom {
        symptom: "Everything is slow at once, high load",
        command: "`sudo runqlat 1 10`",
        reading: "waits, and behind whom: `sudo profile -p PID 10`; one CPU only? `sudo runqlat --by-cpu 5 1`",
        trap: "load counts threads that wait for disks, too",
    },
    Symptom {
        symptom: "p99 spikes, the average is fine",
        command: "`sudo runqlat -p PID --slower 10ms 10 1`",
        reading: "long waits and neighbours; `sudo biolatency --slower 50ms`, `sudo offcputime -m 10000 -p PID 30`",
        trap: "percentiles are of waits: a request has many",
    },
    Symptom {
        symptom: "Slow in a container with a CPU limit only",
        command: "`sudo pressure --cgroup PATH 2`",
        reading: "its CPU quota; which group: `sudo pressure --cgroups 5 1`; where: `sudo offcputime --cgroup PATH 10`",
        trap: "the machine is idle; PATH is below cgroup v2's mount",
    },
    Symptom {
        symptom: "More threads, no more throughput",
        command: "`sudo lockstat -p PID -s 3 10`",
        reading: "the lock, and what its holder does: `sudo profile -p PID 10`, `sudo offcputime -p PID 10`",
        trap: "8 thread-seconds in 1 s: 8 threads wait; `?`: a guess",
    },
    Symptom {
        symptom: "It hangs",
        command: "`sudo lockstat --now -p PID`",
        reading: "who waits for whom, deadlocks, Python's too; nothing there: `sudo offcputime -p PID 5`",
        trap: "Rust's, Go's and readers' locks name no holder",
    },
    Symptom {
        symptom: "High load, idle CPUs (state D)",
        command: "`sudo offcputime --state 2 10`",
        reading: "waits that no signal ends; disks: `sudo biolatency -D 1 10`",
        trap: "a network file system's waits are no disk's",
    },
    Symptom {
        symptom: "Disk, commits or fsync slow",
        command: "`sudo biolatency -D 1 10`",
        reading: "`sudo biolatency -d DISK --phases 5 1`: queue or device; `-P`: whose; `-F`: flushes",
        trap: "writes may be the kernel's write-back, later",
    },
    Symptom {
        symptom: "Whose I/O it is",
        command: "`sudo pressure 2`",
        reading: "culprits; their stacks: `sudo profile -e tracepoint:block:block_bio_queue -p PID 10`",
        trap: "a loop device's I/O is also its file's",
    },
    Symptom {
        symptom: "Swapping, much memory touched",
        command: "`sudo pressure --trigger 'memory some 150ms/2s' 5`",
        reading: "touched: `sudo profile -e page-faults -p PID 10`; read from disk: `-e major-faults`",
        trap: "nothing is printed until memory is short",
    },
    Symptom {
        symptom: "Slower since the last release",
        command: "`sudo profile -p PID 30 -o new.json`",
        reading: "`flame diff old.json new.json -o change.html`; in CI `flame gate old.json new.json`",
        trap: "all slower alike: `flame diff --absolute old.json new.json`",
    },
    Symptom {
        symptom: "Much system time, or calls that fail",
        command: "`sudo syscount 10 1`",
        reading: "errors: `sudo syscount -x 10 1`, `sudo syscount -e ENOENT 10 1`; kernel: `sudo profile -K 10`",
        trap: "time in a call is waiting, too",
    },
    Symptom {
        symptom: "A build or batch job is slow",
        command: "`sudo offcputime -- make -j4`",
        reading: "blocked or waiting for a CPU; on one: `sudo profile -- make -j4`",
        trap: "a parent's wait for its children is no trouble",
    },
    Symptom {
        symptom: "Frames are numbers (JVM, node, Python)",
        command: "",
        reading: "see \"Interpreters and JIT\" in the [guide](docs/guide.md#interpreters-and-jit)",
        trap: "a container's perf map is in its own `/tmp`",
    },
    Symptom {
        symptom: "The network is slow",
        command: "`sudo why -p PID 10`",
        reading: "\"100% for 10.0.0.7:5432\": the other end it waits for; not the network itself: bcc's `tcp*` tools",
        trap: "which of several sockets an `epoll_wait` is for is not told",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_and_its_options_are_looked_up_together() {
        assert!(has("lockstat --now -p 7"));
        assert!(has("profile --comm cc1 10"));
        assert!(has("offcputime -- make --no-such-option"));
        assert!(!has("biolatency --now 1"), "an option of another tool");
        assert!(!has("make 10") && !has(""));
    }
}
