! Trains from Fortran, by iso_c_binding: data from a callback, one rank.
!
!     ./06_fortran
program fortran_example
    use, intrinsic :: iso_c_binding
    implicit none

    integer, parameter :: n_samples = 4, n_voxels = 512, n_features = 1, n_classes = 2
    ! As sp_data_about of sptrain.h.
    type, bind(c) :: data_about
        real(c_double) :: voxel_size
        integer(c_int) :: n_features, n_classes
        type(c_ptr) :: feature_names = c_null_ptr, class_names = c_null_ptr
        type(c_ptr) :: feature_mean = c_null_ptr, feature_std = c_null_ptr
    end type
    ! As sp_training_options, with the members of its sp_hooks.
    type, bind(c) :: training_options
        type(c_ptr) :: comm, deck, train, validation = c_null_ptr
        type(c_ptr) :: arg = c_null_ptr
        type(c_funptr) :: log = c_null_funptr, progress = c_null_funptr
        type(c_funptr) :: should_stop = c_null_funptr, step_end = c_null_funptr
        type(c_funptr) :: evaluation_end = c_null_funptr, loss = c_null_funptr
        type(c_ptr) :: loss_arg = c_null_ptr
        integer(c_int) :: n_metrics = 0
        type(c_funptr) :: metric = c_null_funptr
        type(c_ptr) :: metric_arg = c_null_ptr
    end type
    ! As sp_step_info.
    type, bind(c) :: step_info
        integer(c_int64_t) :: step, epoch, samples
        real(c_double) :: loss, grad_norm, lr
        integer(c_int) :: is_epoch_end, is_skipped, is_stopping
    end type

    abstract interface
        subroutine destroy(object) bind(c)
            import
            type(c_ptr), value :: object
        end subroutine
    end interface
    procedure(destroy), bind(c) :: sp_comm_destroy, sp_deck_destroy, sp_data_destroy, &
        sp_training_destroy
    interface
        integer(c_int) function sp_comm_create_self(comm) bind(c)
            import
            type(c_ptr), intent(out) :: comm
        end function
        integer(c_int) function sp_deck_create(deck, text) bind(c)
            import
            type(c_ptr), intent(out) :: deck
            character(kind=c_char), intent(in) :: text(*)
        end function
        integer(c_int) function sp_data_create_source(data, about, n, sizes, read, arg) bind(c)
            import
            type(c_ptr), intent(out) :: data
            type(data_about), intent(in) :: about
            integer(c_int64_t), value :: n
            integer(c_int64_t), intent(in) :: sizes(*)
            type(c_funptr), value :: read
            type(c_ptr), value :: arg
        end function
        integer(c_int) function sp_training_create(training, options) bind(c)
            import
            type(c_ptr), intent(out) :: training
            type(training_options), intent(in) :: options
        end function
        integer(c_int) function sp_training_is_done(training) bind(c)
            import
            type(c_ptr), value :: training
        end function
        integer(c_int) function sp_training_step(training, info) bind(c)
            import
            type(c_ptr), value :: training
            type(step_info), intent(out) :: info
        end function
    end interface
    type(training_options) :: options
    type(data_about) :: about = data_about(0.1d0, n_features, n_classes)
    type(step_info) :: info
    type(c_ptr) :: training
    integer(c_int64_t) :: sizes(n_samples) = n_voxels

    call check(sp_comm_create_self(options%comm))
    call check(sp_deck_create(options%deck, 'net: { family = "dummy"; width = 0.5; };' // &
        ' batch: { size = 2; }; train: { epochs = 3; warmup_steps = 0; lr = 0.02; };' // &
        ' run: { device = "cpu"; threads = 1; };' // c_null_char))
    call check(sp_data_create_source(options%train, about, int(n_samples, c_int64_t), &
        sizes, c_funloc(read_sample), c_null_ptr))
    call check(sp_training_create(training, options))
    do while (sp_training_is_done(training) == 0)
        call check(sp_training_step(training, info))
        print '(a, i0, a, f0.5)', 'step ', info%step, ': loss ', info%loss
    end do
    call sp_training_destroy(training)
    call sp_data_destroy(options%train)
    call sp_deck_destroy(options%deck)
    call sp_comm_destroy(options%comm)
contains
    subroutine check(status)
        integer(c_int), intent(in) :: status
        if (status /= 0) error stop 'sptrain has failed'
    end subroutine

    ! A box of 8 x 8 x 8 voxels, whose lower half is class 0 and the upper one class 1.
    integer(c_int) function read_sample(arg, i, coords, features, labels) bind(c)
        type(c_ptr), value :: arg
        integer(c_int64_t), value :: i
        integer(c_int32_t), intent(out) :: coords(3, n_voxels), labels(n_voxels)
        real(c_float), intent(out) :: features(n_features, n_voxels)
        integer :: k

        do k = 0, n_voxels - 1
            coords(:, k + 1) = [mod(k, 8), mod(k / 8, 8), k / 64]
            features(1, k + 1) = real(k / 64) / 8 + 0.01 * real(i)
            labels(k + 1) = merge(1, 0, k / 64 >= 4)
        end do
        read_sample = 0
        if (c_associated(arg)) read_sample = 1
    end function
end program
