//! The user-space end of stack interning: ids → addresses → names.
//!
//! Each distinct stack comes once through the ring buffer, moments after it first occurred; user addresses are tied to
//! their modules at once, while the process can still be asked, and named when a report needs them.

mod blocked;
mod interpreters;
mod losses;
mod record;
pub mod unwind;
mod wakers;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use libbpf_rs::MapCore;
use loader::arrivals::Arrivals;
use profile::brief::own_depth;
use profile::frame::Frame;
use profile::model::{StackEnd, Waker};
use symbols::places::{Address, Places};
use symbols::{Location, Origin, Symbolizer};

use crate::interpreters::Part;
pub use crate::interpreters::{LOCKS_TOLD, PYTHON_WAITS, PythonLocks, waits_for_python};
use crate::unwind::Unwinder;
pub use python::Within;
use record::{PythonStack, Record, end_of, kind};
use wakers::WakerIds;

pub use record::words;

/// Of the BPF side: a user stack that was not walked, to keep within a budget.
pub const LEFT_OUT: u64 = 1;
/// The frame that stands for it.
const LEFT_OUT_NAME: &str = "[user stack left out]";

/// An unwinder that several tables walk by.
pub type Walker = Rc<RefCell<Unwinder>>;

struct UserStack {
    /// Leaf first.
    parts: Vec<Part>,
    end: StackEnd,
    names: Option<Arc<[Frame]>>,
}

struct KernelStack {
    addresses: Arc<[u64]>,
    names: Option<Arc<[Frame]>>,
}

/// Every stack seen in a run, by id.
pub struct StackTable {
    symbolizer: Symbolizer,
    unwinder: Walker,
    /// Another table's, which has the unwind tables of these threads.
    lender: Option<Walker>,
    origin: Origin,
    ring: Option<Arrivals<Vec<u8>>>,
    user: HashMap<u64, UserStack>,
    kernel: HashMap<u64, KernelStack>,
    wakers: HashMap<u64, WakerIds>,
    waker_names: HashMap<u64, Arc<Waker>>,
    addresses: Vec<Address>,
    /// User stacks whose frame pointers led to where no code is.
    astray: u64,
    /// Stacks that came beside the ring, and those that found no room.
    outside: usize,
    outside_full: u64,
    /// Walks of threads that had run on by their end.
    ran_on: u64,
    nothing: Arc<[Frame]>,
    left_out: Arc<[Frame]>,
}

impl StackTable {
    /// An empty table. `origin` says which of the tracer's own frames are to be stripped.
    pub fn new(symbolizer: Symbolizer, unwinder: Unwinder, origin: Origin) -> Self {
        Self {
            symbolizer,
            unwinder: Rc::new(RefCell::new(unwinder)),
            lender: None,
            origin,
            ring: None,
            user: HashMap::new(),
            kernel: HashMap::new(),
            wakers: HashMap::new(),
            waker_names: HashMap::new(),
            addresses: Vec::new(),
            astray: 0,
            outside: 0,
            outside_full: 0,
            ran_on: 0,
            nothing: Arc::new([]),
            left_out: symbols::remark(LEFT_OUT_NAME),
        }
    }

    /// Walks threads from outside by what it knows, for tables that have no unwind tables of their own.
    pub fn walker(&self) -> Walker {
        Rc::clone(&self.unwinder)
    }

    /// Threads that do not run are walked by another table's walker from now on.
    pub fn borrow_from(&mut self, lender: Walker) {
        self.lender = Some(lender);
    }

    /// Stacks come through `ring`, the BPF side's `stack_ring`, from now on.
    ///
    /// # Errors
    ///
    /// When it cannot be mapped.
    pub fn listen(&mut self, ring: &impl MapCore) -> Result<()> {
        let ring = Arrivals::open_with(ring, |bytes| Some(bytes.to_vec()));
        self.ring = Some(ring.context("stack ring")?);
        Ok(())
    }

    /// Names addresses, and knows which files processes have mapped.
    pub fn symbolizer(&mut self) -> &mut Symbolizer {
        &mut self.symbolizer
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
            self.unwinder.borrow_mut().follow_command(tgid, program);
        }
        for tgid in tgids {
            self.symbolizer.snapshot([tgid]);
        }
        self.unwinder.borrow_mut().finish(&mut self.symbolizer);
    }

    /// Waits for what is being prepared, as a collection with a budget does: making unwind tables for a whole machine takes more
    /// CPU time than a second of tracing may.
    pub fn finish_preparing(&mut self) {
        self.unwinder.borrow_mut().finish_all(&mut self.symbolizer);
    }

    /// Readable when there is something to take in besides what comes through the ring.
    pub fn fd(&self) -> RawFd {
        self.unwinder.borrow().fd()
    }

    /// One of them is readable when there is something to take in.
    pub fn fds(&self) -> Vec<RawFd> {
        let ring = self.ring.iter().map(Arrivals::fd);
        ring.chain([self.fd()]).collect()
    }

    /// Hexadecimal build IDs by the modules' paths; complete when everything has been named.
    pub fn build_ids(&self) -> BTreeMap<String, String> {
        self.symbolizer.build_ids()
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
    pub fn absorb(&mut self) {
        self.symbolizer.poll();
        let arrived = self.ring.as_ref().map(Arrivals::take);
        for record in arrived.unwrap_or_default() {
            if let Some(record) = Record::parse(&record) {
                self.insert(&record);
            }
        }
        self.unwinder.borrow_mut().update(&mut self.symbolizer);
    }

    /// Finds out what lies at the addresses that came since the last call. Returns the processes that they are in.
    pub fn place_addresses(&mut self, places: &mut Places) -> BTreeSet<u32> {
        let addresses = std::mem::take(&mut self.addresses);
        places.learn(&addresses, Some(&mut self.symbolizer));
        addresses.iter().map(|address| address.tgid).collect()
    }

    /// Counts a stack that was walked from outside and is not of the wait: its thread has run on.
    pub fn count_ran_on(&mut self) {
        self.ran_on += 1;
    }

    /// Code that was not mapped was not running: from there on the frame pointers led astray, and the rest is left out.
    fn user_stack(
        &mut self,
        (tgid, time_ns): (u32, u64),
        addresses: &[u64],
        end: StackEnd,
        python: Option<&PythonStack>,
    ) -> UserStack {
        let locations = self.symbolizer.locate(tgid, time_ns, addresses);
        let callers = locations.iter().skip(1);
        let sound = 1 + callers
            .take_while(|caller| !matches!(caller, Location::Unmapped { .. }))
            .count();
        let astray = sound < locations.len();
        self.astray += u64::from(astray);
        let end = if astray { StackEnd::NoTable } else { end };
        let mut unwinder = self.unwinder.borrow_mut();
        for (at, location) in locations[..sound].iter().enumerate() {
            if let Location::Module { module, .. } = location {
                let is_end = at + 1 == sound && end == StackEnd::NoTable;
                let module = (*module, is_end);
                unwinder.want(tgid, module, &mut self.symbolizer);
            }
        }
        let pythons = &mut unwinder.pythons;
        let (parts, end) = match python {
            Some(python) => {
                pythons.ensure(tgid, &mut self.symbolizer);
                pythons.join(tgid, &locations[..sound], end, python, &self.symbolizer)
            }
            None if astray => (vec![Part::Native(locations[..sound].into())], end),
            None => (vec![Part::Native(locations)], end),
        };
        UserStack {
            parts,
            end,
            names: None,
        }
    }

    fn insert(&mut self, record: &Record) {
        match record.kind {
            kind::USER => {
                let mut unwinder = self.unwinder.borrow_mut();
                unwinder.follow(record.tgid, &mut self.symbolizer);
                drop(unwinder);
                let stack = self.user_stack(
                    (record.tgid, record.time_ns),
                    &record.addresses,
                    end_of(record.end),
                    record.python.as_ref(),
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
            kind::WAKER => {
                let ids = WakerIds::decode(record);
                self.wakers.extend(ids.map(|ids| (record.id, ids)));
            }
            kind::ADDRESS => self
                .addresses
                .extend(record.addresses.first().map(|&address| Address {
                    id: record.id,
                    tgid: record.tgid,
                    address,
                    time_ns: record.time_ns,
                })),
            _ => {}
        }
    }

    /// How user stack `id` ended; `None` for id 0 and for stacks whose record was lost.
    pub fn user_end(&self, id: u64) -> Option<StackEnd> {
        match id {
            LEFT_OUT => Some(StackEnd::LeftOut),
            _ => Some(self.user.get(&id)?.end),
        }
    }

    /// User frames of stack `id`, root → leaf; empty for id 0 and for stacks whose record was lost, a
    /// frame that says so for those that were not walked on purpose.
    pub fn user_names(&mut self, id: u64) -> Arc<[Frame]> {
        let Some(stack) = self.user.get_mut(&id) else {
            let frames = if id == LEFT_OUT {
                &self.left_out
            } else {
                &self.nothing
            };
            return Arc::clone(frames);
        };
        let symbolizer = &mut self.symbolizer;
        let name = || interpreters::named(&stack.parts, |locations| symbolizer.user(locations));
        Arc::clone(stack.names.get_or_insert_with(name))
    }

    /// Frames of user stack `id` from the root up to the last function of the program's own, inlined ones not counted: how deep in
    /// the program its thread is. `None`: the stack does not reach the root, or an interpreter runs the program.
    pub fn own_depth(&mut self, id: u64) -> Option<usize> {
        let is_complete = self.user_end(id) == Some(StackEnd::Root);
        let frames = is_complete.then(|| self.user_names(id))?;
        own_depth(&frames)
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

    /// ID of the user stack of the waker recorded under `id`; 0: none.
    pub fn waker_stack(&self, id: u64) -> u64 {
        self.wakers.get(&id).map_or(0, |ids| ids.user)
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
        let waker = match symbols::interrupt_part(&kernel) {
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
