//! Real RDMA devices.

/// The kernel's RDMA devices are found; sending over them waits for the verbs transport.
#[test]
fn rdma_devices() {
    let devices = ironweave_hwtests::rdma_devices().expect("the kernel's list can be read");
    if devices.is_empty() {
        println!("SKIP rdma_devices: this machine has no RDMA device");
        return;
    }
    for device in &devices {
        let ports = std::path::Path::new("/sys/class/infiniband").join(device).join("ports");
        assert!(ports.is_dir(), "{device} has no ports");
    }
    println!("SKIP rdma_devices: {devices:?} found, but there is no verbs transport yet");
}
