//! Single records on their way from the BPF side, through a ring buffer.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::rc::Rc;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use plain::Plain;

use crate::maps;

/// A ring buffer of records of one type.
pub struct Arrivals<T> {
    ring: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<T>>>,
}

impl<T: Plain + Default + 'static> Arrivals<T> {
    /// Maps the ring buffer.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn open(map: &impl MapCore) -> Result<Self> {
        Self::open_with(map, |bytes| maps::decode(bytes).ok())
    }
}

impl<T: 'static> Arrivals<T> {
    /// The same of records that `decode` makes something of.
    ///
    /// # Errors
    ///
    /// It is no ring buffer.
    pub fn open_with(
        map: &impl MapCore,
        decode: impl Fn(&[u8]) -> Option<T> + 'static,
    ) -> Result<Self> {
        let arrived = Rc::new(RefCell::new(Vec::new()));
        let inbox = Rc::clone(&arrived);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes: &[u8]| {
                inbox.borrow_mut().extend(decode(bytes));
                0
            })
            .context("open ring buffer")?;
        Ok(Self {
            ring: builder.build().context("map ring buffer")?,
            arrived,
        })
    }

    /// Becomes readable when records have come.
    pub fn fd(&self) -> RawFd {
        self.ring.epoll_fd()
    }

    /// What has come since the last call.
    pub fn take(&self) -> Vec<T> {
        // A sender may wake nobody: the ring is asked, and its descriptor not waited for.
        self.ring.consume_raw();
        self.arrived.take()
    }
}
