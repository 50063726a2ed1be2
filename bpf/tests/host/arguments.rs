//! Calls of a loaded object's functions, whose types stand beside them in `host/`.

use std::any::type_name;

use libloading::{Library, Symbol};

/// A number or a pointer that a function takes. Numbers whose type nobody has said are `i32`: none is.
pub(crate) trait Argument: Sized {
    fn is_typed() -> bool {
        !type_name::<Self>().contains("i32")
    }
}

macro_rules! are_arguments {
    ($($number:ty),*) => { $(impl Argument for $number {})* };
}

are_arguments!(bool, u8, u32, u64, i64);

impl<T> Argument for *const T {}
impl<T> Argument for *mut T {}
impl<T> Argument for &T {}
impl<T> Argument for &mut T {}
impl<A, B> Argument for extern "C" fn(A, B) {}
impl<A, B, C> Argument for extern "C" fn(A, B, C) {}
impl<A, B, C> Argument for extern "C" fn(A, B, C) -> bool {}
impl<A, B, C, D> Argument for extern "C" fn(A, B, C, D) {}
impl<A, B, C, D> Argument for unsafe extern "C" fn(A, B, C, D) -> bool {}

/// All that a function takes.
pub(crate) trait Arguments {
    /// # Safety
    ///
    /// The function has these types, and pointers are of what it makes of them.
    unsafe fn call<R>(self, library: &Library, name: &str) -> R;
}

/// The same, but for the last one.
pub(crate) trait Before {
    fn and<T: Argument>(self, last: T) -> impl Arguments;
}

macro_rules! are_all_arguments {
    ($($kind:ident $value:ident),*) => {
        impl<$($kind: Argument),*> Arguments for ($($kind,)*) {
            unsafe fn call<Y>(self, library: &Library, name: &str) -> Y {
                let ($($value,)*) = self;
                assert!(true $(&& $kind::is_typed())*, "{name}");
                // SAFETY: by our caller's word.
                unsafe {
                    let function: Symbol<'_, unsafe extern "C" fn($($kind),*) -> Y> =
                        library.get(name.as_bytes()).expect("a function of the host");
                    function($($value),*)
                }
            }
        }
    };
}

macro_rules! are_before {
    ($($kind:ident $value:ident),*) => {
        impl<$($kind: Argument),*> Before for ($($kind,)*) {
            fn and<Y: Argument>(self, last: Y) -> impl Arguments {
                let ($($value,)*) = self;
                ($($value,)* last,)
            }
        }
    };
}

are_all_arguments!();
are_all_arguments!(A a);
are_all_arguments!(A a, B b);
are_all_arguments!(A a, B b, C c);
are_all_arguments!(A a, B b, C c, D d);
are_all_arguments!(A a, B b, C c, D d, E e);
are_all_arguments!(A a, B b, C c, D d, E e, F f);
are_all_arguments!(A a, B b, C c, D d, E e, F f, G g);
are_before!();
are_before!(A a);
are_before!(A a, B b);
are_before!(A a, B b, C c);
