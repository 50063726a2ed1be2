//! The ring buffer that new stacks come through.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

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
