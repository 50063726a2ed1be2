//! The ring buffer that new stacks come through.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::rc::Rc;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

/// Reader of the ring buffer that new stacks come through.
pub(super) struct Ring {
    buffer: RingBuffer<'static>,
    arrived: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Ring {
    /// Opens the BPF side's `stack_ring`.
    pub(super) fn open(map: &impl MapCore) -> Result<Self> {
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
    pub(super) fn fd(&self) -> RawFd {
        self.buffer.epoll_fd()
    }

    /// Records that have arrived since the last call.
    pub(super) fn take(&self) -> Vec<Vec<u8>> {
        // Records are sent without waking anybody, so ask instead of waiting for the descriptor.
        self.buffer.consume_raw();
        self.arrived.take()
    }
}
