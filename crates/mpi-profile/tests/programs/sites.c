// 200,000 call sites of MPI_Send, one after another in machine code, which compilers handle better than as much C.
#include "expect.h"

enum { SITES = 200000, ROUNDS = 2 };

#if defined(__x86_64__)
__asm__(".text\n"
        ".type everywhere, @function\n"
        "everywhere:\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rdi, %rbx\n"
        "    mov %rdx, %r12\n"
        "    mov %ecx, %r13d\n"
        "    mov %r9, %r14\n"
        ".rept 200000\n"
        "    mov %rbx, %rdi\n"
        "    mov $1, %esi\n"
        "    mov %r12, %rdx\n"
        "    mov %r13d, %ecx\n"
        "    xor %r8d, %r8d\n"
        "    mov %r14, %r9\n"
        "    call MPI_Send@PLT\n"
        ".endr\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    ret\n"
        ".size everywhere, . - everywhere\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".type everywhere, %function\n"
        "everywhere:\n"
        "    stp x29, x30, [sp, #-48]!\n"
        "    stp x19, x20, [sp, #16]\n"
        "    stp x21, x22, [sp, #32]\n"
        "    mov x19, x0\n"
        "    mov x20, x2\n"
        "    mov w21, w3\n"
        "    mov x22, x5\n"
        ".rept 200000\n"
        "    mov x0, x19\n"
        "    mov w1, #1\n"
        "    mov x2, x20\n"
        "    mov w3, w21\n"
        "    mov w4, #0\n"
        "    mov x5, x22\n"
        "    bl MPI_Send\n"
        ".endr\n"
        "    ldp x21, x22, [sp, #32]\n"
        "    ldp x19, x20, [sp, #16]\n"
        "    ldp x29, x30, [sp], #48\n"
        "    ret\n"
        ".size everywhere, . - everywhere\n");
#else
#error "written for x86-64 and aarch64"
#endif

int everywhere(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);

int main(void) {
    int number = 0;
    begin();
    for (int i = 0; i < ROUNDS; i++) everywhere(&number, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    calls("Send", 0, SITES * ROUNDS, 0);
    end();
    return 0;
}
