//! Attributes: values that a program or library hangs on a communicator under keys of its own (MPI standard 5.0, 7.7).
//!
//! Callbacks are called by the methods here and by nothing else, and nothing here refers to an engine: a caller that must
//! not be re-entered clones a table (cheap), calls, and puts it back.

use crate::{CommHandle, CoreError};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// An attribute's value.
pub type Value = Arc<dyn Any + Send + Sync>;
/// Called when a communicator is duplicated, with the old one: the new one's value, none, or a code of its own that makes the
/// duplication fail.
pub type CopyFn =
    Arc<dyn Fn(CommHandle, Keyval, &Value) -> Result<Option<Value>, i32> + Send + Sync>;
/// Called before a value goes; a code of its own keeps the value.
pub type DeleteFn = Arc<dyn Fn(CommHandle, Keyval, &Value) -> Result<(), i32> + Send + Sync>;

/// A key. Never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Keyval(u32);

struct Callbacks {
    copy: Option<CopyFn>,
    delete: Option<DeleteFn>,
}

/// The keys of a process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Keyvals {
    known: BTreeMap<Keyval, Arc<Callbacks>>,
    next: u32,
}

impl Keyvals {
    /// Makes a key. Without `copy` values are not copied; without `delete` they go silently.
    pub fn create(&mut self, copy: Option<CopyFn>, delete: Option<DeleteFn>) -> Keyval {
        let key = Keyval(self.next);
        self.next += 1;
        self.known.insert(key, Arc::new(Callbacks { copy, delete }));
        key
    }

    /// Ends a key: no value can be set with it any more. Values that are there keep their callbacks.
    ///
    /// # Errors
    /// [`CoreError::NoSuchKeyval`].
    pub fn free(&mut self, key: Keyval) -> Result<(), CoreError> {
        self.known.remove(&key).map(|_| ()).ok_or(CoreError::NoSuchKeyval)
    }
}

impl fmt::Debug for Keyvals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.keys()).finish()
    }
}

#[derive(Clone)]
struct Attribute {
    key: Keyval,
    value: Value,
    callbacks: Arc<Callbacks>,
}

impl Attribute {
    fn delete(&self, comm: CommHandle) -> Result<(), CoreError> {
        let Some(delete) = &self.callbacks.delete else { return Ok(()) };
        delete(comm, self.key, &self.value).map_err(CoreError::Callback)
    }
}

/// The attributes of one communicator.
///
/// ```
/// use ironweave_core::{Attributes, CommHandle, Keyvals, Value};
/// use std::sync::Arc;
/// let mut keyvals = Keyvals::default();
/// let key = keyvals.create(Some(Arc::new(|_, _, value| Ok(Some(Value::clone(value))))), None);
/// let (world, mut table) = (CommHandle::NONE, Attributes::default());
/// table.set(&keyvals, world, key, Arc::new(42_u64))?;
/// let copied = table.copied(world)?;
/// assert_eq!(copied.get(key).and_then(|value| value.downcast_ref()), Some(&42_u64));
/// # Ok::<(), ironweave_core::CoreError>(())
/// ```
#[derive(Clone, Default)]
pub struct Attributes(Vec<Attribute>);

impl Attributes {
    /// The value under a key.
    #[must_use]
    pub fn get(&self, key: Keyval) -> Option<&Value> {
        self.0.iter().find(|attribute| attribute.key == key).map(|attribute| &attribute.value)
    }

    /// Sets a value. One that is there already is deleted first.
    ///
    /// # Errors
    /// [`CoreError::NoSuchKeyval`]; [`CoreError::Callback`] when the delete callback refuses: nothing has changed.
    pub fn set(
        &mut self,
        keyvals: &Keyvals,
        comm: CommHandle,
        key: Keyval,
        value: Value,
    ) -> Result<(), CoreError> {
        let callbacks = keyvals.known.get(&key).ok_or(CoreError::NoSuchKeyval)?;
        let new = Attribute { key, value, callbacks: Arc::clone(callbacks) };
        match self.0.iter_mut().find(|attribute| attribute.key == key) {
            Some(old) => {
                old.delete(comm)?;
                *old = new;
            }
            None => self.0.push(new),
        }
        Ok(())
    }

    /// Deletes the value under a key.
    ///
    /// # Errors
    /// [`CoreError::NoSuchKeyval`] when there is none; [`CoreError::Callback`]: the value stays.
    pub fn delete(&mut self, comm: CommHandle, key: Keyval) -> Result<(), CoreError> {
        let at = self.0.iter().position(|attribute| attribute.key == key);
        let at = at.ok_or(CoreError::NoSuchKeyval)?;
        self.0[at].delete(comm)?;
        self.0.remove(at);
        Ok(())
    }

    /// What a duplicate of `comm` starts with.
    ///
    /// # Errors
    /// [`CoreError::Callback`] of the first copy callback that refuses; what was copied before is deleted again.
    pub fn copied(&self, comm: CommHandle) -> Result<Attributes, CoreError> {
        let mut copies = Attributes::default();
        for Attribute { key, value, callbacks } in &self.0 {
            let Some(copy) = &callbacks.copy else { continue };
            match copy(comm, *key, value) {
                Ok(None) => {}
                Ok(Some(value)) => {
                    let callbacks = Arc::clone(callbacks);
                    copies.0.push(Attribute { key: *key, value, callbacks });
                }
                Err(code) => {
                    // The duplication fails already; a second refusal has nobody to tell.
                    let _ = copies.clear(comm);
                    return Err(CoreError::Callback(code));
                }
            }
        }
        Ok(copies)
    }

    /// Deletes all values, the last one set first.
    ///
    /// # Errors
    /// [`CoreError::Callback`] of the first callback that refuses; all are called, and all values go.
    pub fn clear(&mut self, comm: CommHandle) -> Result<(), CoreError> {
        let mut outcome = Ok(());
        while let Some(attribute) = self.0.pop() {
            let deleted = attribute.delete(comm);
            outcome = outcome.and(deleted);
        }
        outcome
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|attribute| attribute.key)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const COMM: CommHandle = CommHandle::NONE;

    fn number(value: u64) -> Value {
        Arc::new(value)
    }

    fn of(value: &Value) -> u64 {
        *value.downcast_ref().expect("tests store numbers")
    }

    /// A key whose delete callback notes what went, and refuses for 13.
    fn noting(keyvals: &mut Keyvals, log: &Arc<Mutex<Vec<u64>>>) -> Keyval {
        let log = Arc::clone(log);
        let copy: CopyFn = Arc::new(|_, _, value| match of(value) {
            7 => Ok(None),
            8 => Err(99),
            other => Ok(Some(number(other + 100))),
        });
        let delete: DeleteFn = Arc::new(move |_, _, value| {
            log.lock().expect("no test panics with it").push(of(value));
            if of(value) == 13 { Err(5) } else { Ok(()) }
        });
        keyvals.create(Some(copy), Some(delete))
    }

    #[test]
    fn callbacks_see_every_value_go_once() {
        let (mut keyvals, log) = (Keyvals::default(), Arc::default());
        let [a, b, c] = [(); 3].map(|()| noting(&mut keyvals, &log));
        let mut table = Attributes::default();
        for (key, value) in [(a, 1), (b, 2), (a, 3), (c, 7)] {
            table.set(&keyvals, COMM, key, number(value)).expect("nothing refuses");
        }
        let mut copies = table.copied(COMM).expect("nothing refuses");
        assert_eq!((copies.get(a).map(of), copies.get(c).map(of)), (Some(103), None));
        copies.clear(COMM).expect("nothing refuses");
        keyvals.free(b).expect("known");
        assert_eq!(table.set(&keyvals, COMM, b, number(4)), Err(CoreError::NoSuchKeyval));
        table.delete(COMM, b).expect("values outlive their key");
        assert_eq!(table.delete(COMM, b), Err(CoreError::NoSuchKeyval));
        table.clear(COMM).expect("nothing refuses");
        assert_eq!(*log.lock().expect("no test panics with it"), [1, 102, 103, 2, 7, 3]);
    }

    #[test]
    fn a_callback_that_refuses_is_heard() {
        let (mut keyvals, log) = (Keyvals::default(), Arc::default());
        let [a, b] = [(); 2].map(|()| noting(&mut keyvals, &log));
        let mut table = Attributes::default();
        table.set(&keyvals, COMM, a, number(13)).expect("new");
        assert_eq!(table.set(&keyvals, COMM, a, number(1)), Err(CoreError::Callback(5)));
        assert_eq!(table.delete(COMM, a), Err(CoreError::Callback(5)));
        assert_eq!(table.get(a).map(of), Some(13));
        table.set(&keyvals, COMM, b, number(8)).expect("new");
        assert!(matches!(table.copied(COMM), Err(CoreError::Callback(99))));
        assert_eq!(table.clear(COMM), Err(CoreError::Callback(5)));
        assert!(table.get(a).is_none());
    }
}
