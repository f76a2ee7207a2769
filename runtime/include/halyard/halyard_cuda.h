/* Halyard on CUDA devices: the same rotation on the caller's own device, context and stream. The C ABI of the component
 * halyard::cuda. The conventions of halyard.h and halyard_kv.h hold here too.
 *
 * How it is used. Make frequencies and a halyard_angle_source as for the CPU; halyard_create_cuda_angles copies the
 * source to device memory, once for all layers and streams of a context; halyard_create_cuda_plan checks a description
 * and loads its kernels; halyard_run_cuda enqueues them.
 *
 * Memory. Pointers are device addresses (CUdeviceptr, what cudaMalloc returns) of the caller's, aligned to elements.
 *
 * Streams. halyard_run_cuda enqueues on the given stream and returns: it does not wait, allocate or copy from or to the
 * host. It can be captured in a graph and replayed with new positions and data in the same memory. Tensors that are
 * adjacent heads of one packed buffer (q and k of a fused QKV) take one launch together, other tensors one each. Out of
 * place, copying the elements beside the window takes one or two more launches. An error word takes one, or with
 * slots two.
 *
 * Layouts. Any strides are allowed, and heads of at most 65,535 elements. Kernels access 16 bytes at a time where the
 * addresses, the strides of tokens and heads, and in half pairing the halves of a head, are multiples of 16 bytes. Else
 * they access two elements of f16 and bf16 where all of these are multiples of two elements and the pairing does not
 * change, else one element.
 *
 * The KV path. A plan may have these stages, if for each tensor one kernel serves all of its stages: RMS norms
 * of whole heads before the rotation, with weights that heads share; an out_dtype that equals dtype or is e4m3, the
 * latter with one static scale per tensor or without a scale; tensors that are not rotated; caches whose heads are
 * dense, in pages of any strides. The kernels (a weight has x's dtype unless the table gives another; "1 + w" is
 * unit_offset):
 *
 *     dtype -> out_dtype              head_dim                    pairing      rotary window    weight
 *     bf16, f16 -> the same or e4m3   64, 80, 96, 128, 192, 256   half         whole head
 *     bf16, f16 -> the same or e4m3   64, 128                     interleaved  whole head
 *     bf16 -> bf16 or e4m3            80                          half         32 at 0
 *     bf16 -> bf16 or e4m3            128                         half         64 at 0
 *     bf16 -> bf16 or e4m3            192                         interleaved  64 at 128
 *     bf16 -> bf16 or e4m3            128, 256                    half         whole head       1 + w
 *     bf16 -> bf16 or e4m3            256                         half         64 at 0          1 + w
 *     bf16 -> bf16 or e4m3            128                         half         whole head       f32
 *     f32 -> f32                      64, 128                     half         whole head
 *
 * halyard_explain_cuda_plan says of each kernel why it does not serve a tensor. Tensors that one kernel serves take one
 * launch, wherever their memory is. Everything else is refused (UNSUPPORTED), as are heads that are not dense, and
 * heads or weights that do not begin on 16 bytes.
 *   scales   are in host memory, which the call reads and checks. A captured graph keeps their values.
 *   slots    Their policy must be RANGE_ONLY and consecutive 0. A slot out of range is not stored, and neither is a
 *            token with a bad position under BAD_POSITION_ERROR. If several tokens have one slot, each element of the
 *            slot comes from one of these tokens, but different elements may come from different ones.
 *   error word   SLOT for a slot out of range, POSITION for a bad position; where there are both, one of them.
 *
 * Results are the bits that the CPU's targets give, for each kind of angle source.
 *
 * Threads. As in halyard.h. Nothing is kept between runs, so any number of threads and streams may share a plan.
 */
#ifndef HALYARD_CUDA_H
#define HALYARD_CUDA_H

#include "halyard_kv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The device, context and stream of the calls below. */
typedef struct halyard_cuda_queue {
    uint32_t size;
    int32_t device; /* HALYARD_CUDA */
    void *context;  /* CUcontext; NULL is the one that is current in the calling thread */
    void *stream;   /* CUstream; NULL is the default stream */
} halyard_cuda_queue;

/* Fills in *info (its size must be set) for HALYARD_CUDA on this machine. supported is 1 if there are a driver and a
 * device that kernels run on. active is always 0, because a device serves only tensors in its own memory.
 * Errors: UNKNOWN_VALUE (device), NULL_POINTER, STRUCT_SIZE. */
HALYARD_API halyard_status halyard_get_cuda_target_info(int32_t device, halyard_target_info *info,
                                                        halyard_error *error);

/* Explains which kernels (marked by *) serve each tensor of the plan description on HALYARD_CUDA, and for which
 * layouts; text, n_bytes and n_needed are as for halyard_explain_plan. If several kernels serve a tensor with stages,
 * the plan takes the one that serves most of its tensors, and the first of these if they tie. If the device cannot be
 * used, the text says why; this is not an error. Errors: as halyard_create_plan (UNSUPPORTED names a stage that no
 * kernel serves), and UNKNOWN_VALUE (device), SHAPE (n_bytes), NULL_POINTER. */
HALYARD_API halyard_status halyard_explain_cuda_plan(int32_t device, const halyard_plan_desc *desc, char *text,
                                                    int64_t n_bytes, int64_t *n_needed, halyard_error *error);

typedef struct halyard_cuda_angles halyard_cuda_angles;

/* Copies an angle source to the device, and waits for the copy. The source itself is not needed afterwards. The call
 * copies the rows of TABLE and the frequencies of PHASE, but nothing of GIVEN: the cos_rows and sin_rows of GIVEN must
 * be in device memory, aligned to their elements, and that memory must outlive the angles. Errors: NULL_POINTER,
 * STRUCT_SIZE, UNKNOWN_VALUE (device), UNSUPPORTED (GIVEN rows by token or not aligned), MISMATCH (GIVEN rows that are
 * not in the device's memory), NO_DEVICE, DEVICE (with the driver's message), OVERFLOW, OUT_OF_MEMORY (of the host or
 * the device). */
HALYARD_API halyard_status halyard_create_cuda_angles(const halyard_cuda_queue *queue,
                                                     const halyard_angle_source *source, halyard_cuda_angles **out,
                                                     halyard_error *error);

/* Frees the device memory. No plan, enqueued work or captured graph may use it any more. NULL is allowed. */
HALYARD_API void halyard_destroy_cuda_angles(halyard_cuda_angles *angles);

typedef struct halyard_cuda_plan halyard_cuda_plan;

/* Checks a description and loads the kernels that it may need into the queue's context: the driver compiles them, which
 * can take a while the first time. desc.target and desc.max_target must be NULL: the device decides. The angles must be
 * in the same context, and must outlive the plan. Errors: as halyard_create_plan, and NO_DEVICE, DEVICE, MISMATCH. */
HALYARD_API halyard_status halyard_create_cuda_plan(const halyard_cuda_queue *queue, const halyard_plan_desc *desc,
                                                   const halyard_cuda_angles *angles, halyard_cuda_plan **out,
                                                   halyard_error *error);

/* Destroys a plan. If its context has no other plan, the kernels are unloaded too. No enqueued work may still use the
 * plan, and no graph that captured its runs may be launched any more. NULL is allowed. */
HALYARD_API void halyard_destroy_cuda_plan(halyard_cuda_plan *plan);

typedef struct halyard_cuda_run_args {
    uint32_t size;
    int32_t bad_position;               /* HALYARD_BAD_POSITION_…: ERROR rotates as position 0 and sets *error_word */
    void *stream;                       /* CUstream of the plan's context */
    const halyard_positions *positions; /* data in device memory, aligned to 4 bytes; NULL: 0, 1, 2, … */
    const halyard_tensor *x;            /* as in halyard_run_args, with device HALYARD_CUDA */
    const halyard_tensor *y;
    int32_t *error_word;                /* NULL, or a word in device memory, which must not overlap any other array.
                                           With bad_position ERROR, a bad position sets it to HALYARD_ERROR_POSITION,
                                           unless its token has no slot and all of that token's outputs go to caches.
                                           A slot out of range sets it to HALYARD_ERROR_SLOT. A run never clears it.
                                           Must be NULL if there are no slots and bad_position is not ERROR */
    const halyard_kv_args *kv;          /* as in halyard_run_args, see "KV path" above: slots, weights and caches in
                                           device memory, scales in host memory */
    int32_t n_tensors;                  /* as in halyard_run_args */
    int32_t reserved;                   /* 0 */
} halyard_cuda_run_args;

/* Enqueues a run of the plan. On any error but DEVICE nothing is enqueued; after DEVICE a part of the run may be, so
 * that outputs may be incomplete. Errors: those of halyard_run except POSITION, SLOT, THREADS and EXECUTOR; UNSUPPORTED
 * (misaligned elements; arrays outside device memory; scales in device memory; a slot policy other than RANGE_ONLY),
 * DEVICE. */
HALYARD_API halyard_status halyard_run_cuda(const halyard_cuda_plan *plan, const halyard_cuda_run_args *args,
                                           halyard_error *error);

#ifdef __cplusplus
}
#endif

#endif /* HALYARD_CUDA_H */
