;; An offcode that does nothing, as docs/wasm-abi.md has it: it answers each call with nothing. idle.wasm is made of it:
;; BLESS=1 cargo test -p runtime entries
(module
  (memory (export "memory") 4)
  ;; version, input area, output area, last words, interfaces: each place and length
  (data (i32.const 16) "\01\00\00\00" "\00\04\00\00" "\00\00\01\00" "\00\00\02\00" "\00\00\01\00"
                       "\00\02\00\00" "\00\01\00\00" "\40\00\00\00" "\01\00\00\00")
  ;; the GUID of the interface Idle
  (data (i32.const 64) "\b0\64\d7\4d\dc\8d\49\ca\a6\bd\25\51\c0\d4\71\94")
  ;; an answer without bytes
  (data (i32.const 131072) "\03")
  (func (export "offcode_describe") (result i32) (i32.const 16))
  ;; 16 bytes of actions where the first event is a call
  (func (export "offcode_handle") (param i32) (result i32)
    (i32.shl (i32.eq (i32.load16_u (i32.const 1296)) (i32.const 3)) (i32.const 4))))
