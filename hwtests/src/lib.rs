//! Tests on real devices and on Soft-RoCE in a virtual machine.
