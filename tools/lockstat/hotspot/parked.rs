//! A thread's own word on what it waits for: `java.bpf.h` reads the same.

use bpf::lockstat::types::java_machine;

use super::layout::{CLASS_IN_HEADER, CLASS_NUMBER, CLASS_UNKNOWN};
use super::{CLASS_SHIFT, Machine};

/// Bits of a reference, one of which says where its address begins.
const COLOURS: u64 = 0xf000;

/// Kinds of things that a thread waits for: `enum java_wait` of the BPF side, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum What {
    #[default]
    Unknown,
    /// Nothing, or a time.
    Sleep,
    Notice,
    Monitor,
    Blocker,
}

/// The thing that a thread waits for: addresses of the object, its class, and its monitor; 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Awaited {
    pub(crate) what: What,
    pub(crate) object: u64,
    pub(crate) class: u64,
    pub(crate) monitor: u64,
    /// The JavaThread of the one that has it, if it is no monitor and says so.
    pub(crate) owner: u64,
}

impl Machine<'_> {
    /// `None`: its memory cannot be read.
    pub(crate) fn awaited(&self, layout: &java_machine, thread: u64) -> Option<Awaited> {
        let entered = self.word(place(thread, layout.pending_monitor))?;
        let notified = self.word(place(thread, layout.waiting_monitor))?;
        match (entered, notified) {
            (0, 0) => self.parked(layout, thread),
            (0, monitor) => self.monitor(layout, What::Notice, monitor),
            (monitor, _) => self.monitor(layout, What::Monitor, monitor),
        }
    }

    fn monitor(&self, layout: &java_machine, what: What, monitor: u64) -> Option<Awaited> {
        let handle = self.word(place(monitor, layout.monitor_object))?;
        let object = self.long_reference(layout, handle)?;
        Some(Awaited {
            what,
            object: object & layout.address_bits,
            class: self.class_of(layout, object)?,
            monitor,
            owner: 0,
        })
    }

    fn parked(&self, layout: &java_machine, thread: u64) -> Option<Awaited> {
        if layout.class_place == CLASS_UNKNOWN {
            return Some(Awaited::default());
        }
        let own = self.object_of(layout, thread)?;
        let object = self.reference(layout, place(own, layout.park_blocker))?;
        if object == 0 {
            return Some(Awaited {
                what: What::Sleep,
                ..Awaited::default()
            });
        }
        let class = self.class_of(layout, object)?;
        let is_ownable = self.word(place(class, layout.ancestor)) == Some(layout.ownable);
        let owner = is_ownable.then(|| self.owner_of(layout, object));
        Some(Awaited {
            what: What::Blocker,
            object: object & layout.address_bits,
            class,
            monitor: 0,
            owner: owner.flatten().unwrap_or(0),
        })
    }

    /// The object of a thread, by the address of its JavaThread.
    pub(crate) fn object_of(&self, layout: &java_machine, thread: u64) -> Option<u64> {
        let at = place(thread, layout.thread_object);
        match layout.has_handles {
            0 => self.word(at),
            _ => self.long_reference(layout, self.word(at)?),
        }
    }

    /// The JavaThread that has a lock of java.util.concurrent.
    fn owner_of(&self, layout: &java_machine, lock: u64) -> Option<u64> {
        let owner = self.reference(layout, place(lock, layout.owner))?;
        (owner != 0).then_some(())?;
        self.word(place(owner, layout.native_thread))
    }

    /// Address of the object that a field refers to; 0: none.
    pub(crate) fn reference(&self, layout: &java_machine, at: u64) -> Option<u64> {
        if layout.has_short_references == 0 {
            return self.long_reference(layout, at);
        }
        let number = u64::from(self.half(at)?);
        let far = number.checked_shl(layout.object_shift.into()).unwrap_or(0);
        Some(if number == 0 {
            0
        } else {
            layout.object_base.wrapping_add(far)
        })
    }

    /// The same of a reference of eight bytes.
    fn long_reference(&self, layout: &java_machine, at: u64) -> Option<u64> {
        let reference = self.word(at)?;
        let colour = reference & COLOURS;
        Some(match layout.has_colours != 0 && colour != 0 {
            true => reference >> (colour.trailing_zeros() + 1),
            false => reference,
        })
    }

    /// Address of an object's class.
    pub(crate) fn class_of(&self, layout: &java_machine, object: u64) -> Option<u64> {
        let at = object.wrapping_add(layout.class_at.into());
        let number = match layout.class_place {
            CLASS_UNKNOWN => return Some(0),
            CLASS_NUMBER => self.half(at)?.into(),
            CLASS_IN_HEADER => self.word(object)? >> CLASS_SHIFT,
            _ => return self.word(at),
        };
        let far = number.checked_shl(layout.class_shift.into()).unwrap_or(0);
        (number != 0).then(|| layout.class_base.wrapping_add(far))
    }
}

fn place(base: u64, field: u16) -> u64 {
    base.wrapping_add(field.into())
}

#[cfg(test)]
#[path = "parked_tests.rs"]
mod tests;
