//! The user-space end of stack interning: ids → addresses → names.
//!
//! Each distinct stack comes once through the ring buffer, moments after it first occurred; user addresses are tied to
//! their modules at once, while the process can still be asked, and named when a report needs them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use profile::frame::Frame;
use profile::model::{StackEnd, Task, Waker};

use crate::losses::Losses;
use crate::symbolize::{self, Location, Origin, Symbolizer};
use crate::task;
use crate::unwind::{Registers, Unwinder};

/// `struct stack_record` up to its addresses.
const HEADER_BYTES: usize = 24;
/// Words of a waker's record: thread ID, name (2), kernel stack, user stack.
const WAKER_WORDS: usize = 5;

/// `enum stack_kind`.
mod kind {
    pub(super) const USER: u8 = 1;
    pub(super) const KERNEL: u8 = 2;
    pub(super) const WAKER: u8 = 3;
}

/// Reader of the ring buffer that new stacks come through.
pub struct Ring {
    buffer: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Ring {
    /// Opens the BPF side's `stack_ring`.
    ///
    /// # Errors
    ///
    /// When it cannot be mapped.
    pub fn open(map: &impl MapCore) -> Result<Self> {
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let inbox = Rc::clone(&arrived);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes: &[u8]| {
                inbox.borrow_mut().push(bytes.to_vec());
                0
            })
            .context("open stack ring buffer")?;
        Ok(Self {
            buffer: builder.build().context("map stack ring buffer")?,
            arrived,
        })
    }

    /// Descriptor that becomes readable when the ring fills up.
    pub fn fd(&self) -> i32 {
        self.buffer.epoll_fd()
    }

    /// Records that have arrived since the last call.
    pub fn take(&self) -> Vec<Vec<u8>> {
        // Records are sent without waking anybody, so ask instead of waiting for the descriptor.
        self.buffer.consume_raw();
        self.arrived.take()
    }

    /// Waits for records, at most `timeout`; signals end the wait early.
    pub fn wait(&self, timeout: Duration) {
        self.buffer.poll_raw(timeout);
    }
}

struct UserStack {
    locations: Arc<[Location]>,
    end: StackEnd,
    names: Option<Arc<[Frame]>>,
}

struct KernelStack {
    addresses: Arc<[u64]>,
    names: Option<Arc<[Frame]>>,
}

struct WakerIds {
    task: Task,
    kernel: u64,
    user: u64,
}

/// Every stack seen in a run, by id.
pub struct StackTable {
    symbolizer: Symbolizer,
    unwinder: Unwinder,
    origin: Origin,
    user: HashMap<u64, UserStack>,
    kernel: HashMap<u64, KernelStack>,
    wakers: HashMap<u64, WakerIds>,
    waker_names: HashMap<u64, Arc<Waker>>,
    /// User stacks whose frame pointers led to where no code is.
    astray: u64,
    nothing: Arc<[Frame]>,
}

impl StackTable {
    /// An empty table. `origin` says which of the tracer's own frames are to be stripped.
    pub fn new(symbolizer: Symbolizer, unwinder: Unwinder, origin: Origin) -> Self {
        Self {
            symbolizer,
            unwinder,
            origin,
            user: HashMap::new(),
            kernel: HashMap::new(),
            wakers: HashMap::new(),
            waker_names: HashMap::new(),
            astray: 0,
            nothing: Arc::new([]),
        }
    }

    /// Loads what stacks of these processes will need; takes a few milliseconds for each large program among them.
    ///
    /// `command` is one that is about to run, and its program.
    pub fn prepare(
        &mut self,
        tgids: impl IntoIterator<Item = u32>,
        command: Option<(u32, &OsStr)>,
    ) {
        if let Some((tgid, program)) = command {
            self.unwinder.follow_command(tgid, program);
        }
        for tgid in tgids {
            self.symbolizer.snapshot([tgid]);
        }
        self.unwinder.update(&mut self.symbolizer);
    }

    /// What could not be named.
    pub fn count_losses(&self, losses: &mut Losses) {
        let symbols = self.symbolizer.losses();
        losses.count(
            "mapping_changes_lost",
            "changes of mappings: stream full",
            symbols.stream_records,
        );
        losses.count(
            "mappings_forgotten",
            "exited processes forgotten",
            symbols.forgotten,
        );
        self.unwinder.count_losses(losses);
    }

    /// What is printed as `module+0xoffset`, and why.
    pub fn describe_unnamed(&self) -> String {
        let symbols = self.symbolizer.losses();
        let reason = |what: &str, why: &Option<String>| {
            why.as_ref()
                .map(|why| format!("; {what}: {why}"))
                .unwrap_or_default()
        };
        format!(
            "{} of {} frames unnamed; {} stacks whose frame pointers led astray; {} files not opened, {} changed, {} \
             refused; {} processes gone before their mappings were read; {} perf maps refused{}{}; {}",
            symbols.unnamed,
            symbols.frames,
            self.astray,
            symbols.modules_unopened,
            symbols.modules_changed,
            symbols.modules_refused,
            symbols.processes_gone,
            symbols.perf_maps_refused,
            reason("no stream of mapping changes", &symbols.stream),
            reason("no kernel names", &symbols.kernel),
            self.unwinder.describe(),
        )
    }

    /// Number of distinct stacks seen.
    pub fn len(&self) -> usize {
        self.user.len() + self.kernel.len()
    }

    /// Whether no stack was seen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes in what came through the ring.
    pub fn absorb(&mut self, ring: &Ring) {
        self.symbolizer.poll();
        for record in ring.take() {
            if let Some(record) = Record::parse(&record) {
                self.insert(&record);
            }
        }
        self.unwinder.update(&mut self.symbolizer);
    }

    /// Adds the user stack of a thread that is blocked in the kernel; returns its id.
    pub fn insert_blocked(&mut self, tgid: u32, time_ns: u64, registers: Registers) -> u64 {
        self.unwinder.follow(tgid, &mut self.symbolizer);
        let (addresses, end) = self.unwinder.walk(tgid, registers);
        let id = self.outside_id(&addresses, tgid);
        let stack = self.user_stack(tgid, time_ns, &addresses, end);
        self.user.entry(id).or_insert(stack);
        id
    }

    /// Adds a kernel stack that came by another way than the ring; returns its id.
    pub fn insert_kernel(&mut self, addresses: &[u64]) -> u64 {
        let id = self.outside_id(addresses, 0);
        self.kernel.entry(id).or_insert(KernelStack {
            addresses: addresses.into(),
            names: None,
        });
        id
    }

    /// Code that was not mapped was not running: from there on the frame pointers led astray, and the rest is left out.
    fn user_stack(
        &mut self,
        tgid: u32,
        time_ns: u64,
        addresses: &[u64],
        end: StackEnd,
    ) -> UserStack {
        let locations = self.symbolizer.locate(tgid, time_ns, addresses);
        let callers = locations.iter().skip(1);
        let sound = 1 + callers
            .take_while(|caller| !matches!(caller, Location::Unmapped { .. }))
            .count();
        let astray = sound < locations.len();
        self.astray += u64::from(astray);
        UserStack {
            end: if astray { StackEnd::NoTable } else { end },
            locations: if astray {
                locations[..sound].into()
            } else {
                locations
            },
            names: None,
        }
    }

    /// Ids made here only have to differ from each other and, in all likelihood, from the BPF side's.
    fn outside_id(&self, addresses: &[u64], tgid: u32) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (addresses, tgid, "outside").hash(&mut hasher);
        hasher.finish() | 1
    }

    fn insert(&mut self, record: &Record) {
        match record.kind {
            kind::USER => {
                self.unwinder.follow(record.tgid, &mut self.symbolizer);
                let stack = self.user_stack(
                    record.tgid,
                    record.time_ns,
                    &record.addresses,
                    end_of(record.end),
                );
                self.user.insert(record.id, stack);
            }
            kind::KERNEL => {
                let addresses = record.addresses.as_slice().into();
                self.kernel.insert(
                    record.id,
                    KernelStack {
                        addresses,
                        names: None,
                    },
                );
            }
            kind::WAKER if record.addresses.len() == WAKER_WORDS => {
                self.wakers.insert(record.id, WakerIds::decode(record));
            }
            _ => {}
        }
    }

    /// How user stack `id` ended; `None` for id 0 and for stacks whose record was lost.
    pub fn user_end(&self, id: u64) -> Option<StackEnd> {
        Some(self.user.get(&id)?.end)
    }

    /// User frames of stack `id`, root → leaf; empty for id 0 and for stacks whose record was lost.
    pub fn user_names(&mut self, id: u64) -> Arc<[Frame]> {
        let Some(stack) = self.user.get_mut(&id) else {
            return Arc::clone(&self.nothing);
        };
        Arc::clone(
            stack
                .names
                .get_or_insert_with(|| self.symbolizer.user(&stack.locations)),
        )
    }

    /// Kernel frames of stack `id`, root → leaf, without the tracer's own.
    pub fn kernel_names(&mut self, id: u64) -> Arc<[Frame]> {
        let Some(stack) = self.kernel.get_mut(&id) else {
            return Arc::clone(&self.nothing);
        };
        let origin = self.origin;
        Arc::clone(
            stack
                .names
                .get_or_insert_with(|| self.symbolizer.kernel(&stack.addresses, origin)),
        )
    }

    /// The waker recorded under `id`.
    ///
    /// What an interrupt interrupted has nothing to do with the wakeup: of such a waker only the interrupt is kept.
    pub fn waker(&mut self, id: u64) -> Option<Arc<Waker>> {
        if let Some(waker) = self.waker_names.get(&id) {
            return Some(Arc::clone(waker));
        }
        let ids = self.wakers.get(&id)?;
        let (task, kernel, user) = (ids.task.clone(), ids.kernel, ids.user);
        let kernel = self.kernel_names(kernel);
        let waker = match symbolize::interrupt_part(&kernel) {
            Some(interrupt) => Waker {
                task: None,
                user: Arc::clone(&self.nothing),
                user_end: None,
                kernel: interrupt.into(),
            },
            None => Waker {
                task: Some(task),
                user: self.user_names(user),
                user_end: self.user_end(user),
                kernel,
            },
        };
        let waker = Arc::new(waker);
        self.waker_names.insert(id, Arc::clone(&waker));
        Some(waker)
    }
}

struct Record {
    id: u64,
    time_ns: u64,
    tgid: u32,
    kind: u8,
    end: u8,
    addresses: Vec<u64>,
}

/// `enum stack_end` of the BPF side.
fn end_of(code: u8) -> StackEnd {
    match code {
        0 => StackEnd::Root,
        1 => StackEnd::Depth,
        2 => StackEnd::NoTable,
        3 => StackEnd::Unreadable,
        _ => StackEnd::Unsupported,
    }
}

impl Record {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let word = |at: usize| Some(u64::from_ne_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let depth = u16::from_ne_bytes(header.get(20..22)?.try_into().ok()?).into();
        let addresses: Vec<u64> = words(rest).take(depth).collect();
        (addresses.len() == depth).then_some(Self {
            id: word(0)?,
            time_ns: word(8)?,
            tgid: u32::from_ne_bytes(header.get(16..20)?.try_into().ok()?),
            kind: *header.get(22)?,
            end: *header.get(23)?,
            addresses,
        })
    }
}

impl WakerIds {
    fn decode(record: &Record) -> Self {
        let [tid, name0, name1, kernel, user] = record.addresses[..] else {
            unreachable!("the caller checked the number of words")
        };
        let mut comm = [0; 16];
        comm[..8].copy_from_slice(&name0.to_ne_bytes());
        comm[8..].copy_from_slice(&name1.to_ne_bytes());
        let task = Task {
            comm: task::comm_text(&comm),
            tgid: record.tgid,
            tid: u32::try_from(tid).unwrap_or(0),
        };
        Self { task, kernel, user }
    }
}

/// Native-endian 64-bit words of a byte string; a torn end is left out.
pub fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("chunks of 8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_bpf_lays_it_out() {
        let mut bytes = Vec::new();
        bytes.extend(7_u64.to_ne_bytes());
        bytes.extend(99_u64.to_ne_bytes());
        bytes.extend(1234_u32.to_ne_bytes());
        bytes.extend(2_u16.to_ne_bytes());
        bytes.extend([kind::USER, 3]);
        bytes.extend(0x10_u64.to_ne_bytes());
        bytes.extend(0x20_u64.to_ne_bytes());
        let record = Record::parse(&bytes).expect("a whole record");
        assert_eq!(
            (record.id, record.time_ns, record.tgid, record.kind),
            (7, 99, 1234, kind::USER)
        );
        assert_eq!(end_of(record.end), StackEnd::Unreadable);
        assert_eq!(record.addresses, [0x10, 0x20]);
        assert!(Record::parse(&bytes[..bytes.len() - 1]).is_none(), "torn");
        assert!(Record::parse(&bytes[..10]).is_none(), "no header");
    }
}
