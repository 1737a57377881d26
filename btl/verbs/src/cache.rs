//! Registrations that are kept between operations, of memory that cannot go away meanwhile.
//!
//! Only memory of [`ironweave_btl::lasting`] is cached, as a whole, and only for our own side of puts and gets: a piece
//! stays where it is for as long as its registration holds it, so there is nothing that a `free` or `munmap` of the user
//! could make stale. What peers are given rights to is never kept: after `deregister` no peer reaches it (law 2 and
//! the contract). Registered bytes are bounded; what was used least lately goes first.

use ironweave_btl::lasting::Lasting;
use std::sync::Arc;

/// A registration and the memory that it is of.
pub struct Kept<R> {
    // Goes before the memory.
    pub registration: R,
    memory: Arc<Lasting>,
}

/// Kept registrations; an operation in flight holds its own too.
pub struct Cache<R> {
    /// Least lately used first.
    entries: Vec<Arc<Kept<R>>>,
    bytes: usize,
    most: usize,
}

impl<R> Cache<R> {
    /// Of `most` bytes of memory at most.
    pub fn new(most: usize) -> Cache<R> {
        Cache { entries: Vec::new(), bytes: 0, most }
    }

    /// The registration of `memory`, made by `register` if it is not there; `None` when there is no room for it, or the
    /// device has none: it is not kept then.
    pub fn of<E>(
        &mut self,
        memory: Arc<Lasting>,
        register: impl FnOnce(&Lasting) -> Result<R, E>,
    ) -> Option<Arc<Kept<R>>> {
        if let Some(at) = self.entries.iter().position(|kept| Arc::ptr_eq(&kept.memory, &memory)) {
            self.entries[at..].rotate_left(1);
            return self.entries.last().cloned();
        }
        self.sweep();
        if !self.make_room(memory.len()) {
            return None;
        }
        let registration = register(&memory).ok()?;
        self.bytes += memory.len();
        self.entries.push(Arc::new(Kept { registration, memory }));
        self.entries.last().cloned()
    }

    /// Drops what no operation uses until `len` bytes more are within the bound; whether they are.
    fn make_room(&mut self, len: usize) -> bool {
        let spare = self.most.saturating_sub(len);
        if len > self.most {
            return false;
        }
        let mut at = 0;
        while self.bytes > spare && at < self.entries.len() {
            if Arc::strong_count(&self.entries[at]) == 1 {
                self.bytes -= self.entries.remove(at).memory.len();
            } else {
                at += 1;
            }
        }
        self.bytes <= spare
    }

    /// Lets go of memory that the user gave back.
    pub fn sweep(&mut self) {
        let bytes = &mut self.bytes;
        self.entries.retain(|kept| {
            let stays = !kept.memory.is_released();
            *bytes -= if stays { 0 } else { kept.memory.len() };
            stays
        });
    }

    /// Lets go of all that no operation uses: the device has no room for something else. Whether there was any.
    pub fn clear(&mut self) -> bool {
        let before = self.entries.len();
        self.make_room(self.most);
        self.entries.len() < before
    }

    /// Bytes that are registered for longer than an operation.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironweave_btl::lasting;
    use std::alloc::Layout;
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::rc::Rc;

    /// Counts what is registered.
    type Device = Rc<RefCell<BTreeSet<usize>>>;

    struct Fake(Device, usize);

    impl Drop for Fake {
        fn drop(&mut self) {
            assert!(self.0.borrow_mut().remove(&self.1), "ended twice");
        }
    }

    fn piece(len: usize) -> Arc<Lasting> {
        let layout = Layout::from_size_align(len, 64).expect("a sound layout");
        let start = lasting::allocate(layout).expect("memory").as_ptr();
        lasting::covering(start, len).expect("it was just allocated")
    }

    fn get(
        cache: &mut Cache<Fake>,
        device: &Device,
        piece: &Arc<Lasting>,
    ) -> Option<Arc<Kept<Fake>>> {
        let start = piece.start().addr();
        cache.of(Arc::clone(piece), |_| {
            assert!(device.borrow_mut().insert(start), "registered twice");
            Ok::<_, ()>(Fake(Rc::clone(device), start))
        })
    }

    #[test]
    fn the_least_lately_used_goes_first() {
        let (device, mut cache) = (Device::default(), Cache::new(300));
        let [a, b, c, big] = [100, 100, 150, 301].map(piece);
        let has = |piece: &Arc<Lasting>| device.borrow().contains(&piece.start().addr());
        assert!(get(&mut cache, &device, &a).is_some());
        assert!(get(&mut cache, &device, &b).is_some());
        assert!(get(&mut cache, &device, &a).is_some(), "no second registration");
        assert!(get(&mut cache, &device, &c).is_some());
        assert!(has(&a) && !has(&b) && has(&c));
        assert_eq!(cache.bytes(), 250);
        assert!(get(&mut cache, &device, &big).is_none(), "more than may be kept");
        assert_eq!(device.borrow().len(), 2);
        assert!(cache.clear());
        assert_eq!((cache.bytes(), device.borrow().len()), (0, 0));
    }

    #[test]
    fn what_is_in_use_stays() {
        let (device, mut cache) = (Device::default(), Cache::new(200));
        let [a, b] = [200, 100].map(piece);
        let used = get(&mut cache, &device, &a).expect("there is room");
        assert!(get(&mut cache, &device, &b).is_none());
        assert!(!cache.clear());
        drop(used);
        assert!(get(&mut cache, &device, &b).is_some());
        assert_eq!(device.borrow().len(), 1);
    }

    #[test]
    fn memory_that_was_given_back_is_freed_after_its_registration() {
        let (device, mut cache) = (Device::default(), Cache::new(1 << 20));
        let memory = piece(1 << 16);
        let (start, weak) = (memory.start(), Arc::downgrade(&memory));
        let used = get(&mut cache, &device, &memory).expect("there is room");
        drop(memory);
        assert!(lasting::release(start));
        cache.sweep();
        assert_eq!(cache.bytes(), 0);
        assert!(weak.upgrade().is_some() && device.borrow().len() == 1, "an operation uses it");
        drop(used);
        assert!(weak.upgrade().is_none() && device.borrow().is_empty());
    }
}
